// Tables and formulas that are wider than the page scroll by keyboard, too.
const WIDE = ".md-typeset__scrollwrap, .md-content [style*='overflow-x']";
addEventListener("load", () => {
  const watch = new ResizeObserver((changes) => {
    for (const { target } of changes) {
      const scrolls = target.scrollWidth > target.clientWidth;
      if (scrolls) target.setAttribute("tabindex", "0");
      else target.removeAttribute("tabindex");
    }
  });
  document.querySelectorAll(WIDE).forEach((element) => watch.observe(element));
});
