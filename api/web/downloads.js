// Downloads: the figures as one SVG or PNG with title and source, and the numbers as CSV.
/* global d3 */

const NAMESPACE = "http://www.w3.org/2000/svg";
const LINE = 17;
const MARGIN = 14;

/** One SVG text of figures side by side, below lines of text, in the colours of the page on white. */
export function joinFigures(figures, lines) {
  const widths = figures.map((svgs) => d3.max(svgs, (svg) => Number(svg.getAttribute("width"))));
  const heights = figures.map((svgs) => d3.sum(svgs, (svg) => Number(svg.getAttribute("height"))));
  const width = d3.sum(widths) + MARGIN * (figures.length + 1);
  const wrapped = lines.flatMap((line) => wrapText(line, Math.floor(width / 6.6)));
  const head = LINE * (wrapped.length + 1);
  const height = head + d3.max(heights) + MARGIN;
  const root = document.createElementNS(NAMESPACE, "svg");
  const size = { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "Arial, sans-serif", "font-size": 12, fill: "#1c2430", color: "#1c2430" };
  for (const [name, value] of Object.entries(size)) root.setAttribute(name, value);
  add(root, "rect", { width, height, fill: "#ffffff" });
  wrapped.forEach((line, i) => { add(root, "text", { x: MARGIN, y: LINE * (i + 1) }).textContent = line; });
  let x = MARGIN;
  figures.forEach((svgs, i) => {
    let y = head;
    for (const svg of svgs) {
      const copy = svg.cloneNode(true);
      copy.setAttribute("x", x);
      copy.setAttribute("y", y);
      root.append(copy);
      y += Number(svg.getAttribute("height"));
    }
    x += widths[i] + MARGIN;
  });
  const light = { ink: "#1c2430", paper: "#ffffff", soft: "#57606a", median: "#1667c0", set: "#3d86d6" };
  return new XMLSerializer().serializeToString(root).replace(/var\(--(\w+)\)/g, (_, name) => light[name]);
}

function add(parent, name, attributes) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent.append(element);
  return element;
}

function wrapText(text, length) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if (lines.at(-1).length + word.length > length) lines.push("");
    lines[lines.length - 1] += `${word} `;
  }
  return lines.map((line) => line.trim());
}

/** A PNG of an SVG text, at twice its size. */
export async function pngOf(svg) {
  const image = new Image();
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * image.naturalWidth, 2 * image.naturalHeight];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

/** The forecasts of all cases as CSV text, one row a year. */
export function csvOf(cases) {
  const rows = cases.flatMap(({ label, horizons }) => horizons.map((row) => {
    const cells = { case: label, year: row.year, years_ahead: row.h, mean: row.mean, median: row.quantiles["0.5"], p_zero: row.p_zero };
    for (const set of row.intervals) {
      const name = Math.round(100 * set.coverage);
      Object.assign(cells, { [`lower_${name}`]: set.lower, [`upper_${name}`]: set.upper, [`includes_zero_${name}`]: set.includes_zero, [`guarantee_${name}`]: set.guarantee });
    }
    return cells;
  }));
  return d3.csvFormat(rows);
}

/** Let the browser save content under a name. */
export function saveFile(content, type, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
