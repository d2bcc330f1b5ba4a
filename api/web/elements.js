// The elements of the page: find them, make them, and fill selections.

/** The element with this id. */
export function element(id) {
  return document.getElementById(id);
}

/** A new element with text; a number and its per cent sign stay on one line. */
export function node(tag, text, name) {
  const made = document.createElement(tag);
  made.textContent = String(text).replaceAll(" %", "\u00a0%");
  if (name) made.className = name;
  return made;
}

/** Gives a selection these options, as value and text; the chosen one stays if it is among them. */
export function fillSelect(id, options) {
  const before = element(id).value;
  element(id).replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  choose(id, before);
}

/** Chooses a value of a field; a selection that does not have it stays as it is. */
export function choose(id, value) {
  const { options } = element(id);
  if (value !== undefined && (!options || [...options].some((option) => option.value === String(value)))) element(id).value = value;
}

/** The values of fields, by id. */
export function valuesOf(ids) {
  return Object.fromEntries(ids.map((id) => [id, element(id).value]));
}

/** A table that scrolls by itself where the page is narrow; the first cell of a row is its head. */
export function tableOf({ caption, head, rows }) {
  const table = document.createElement("table");
  table.append(node("caption", caption), document.createElement("thead"), document.createElement("tbody"));
  table.tHead.append(rowOf(head, "th", "col"));
  table.tBodies[0].append(...rows.map((row) => rowOf(row, "td")));
  const scroll = node("div", "", "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", caption);
  scroll.append(table);
  return scroll;
}

function rowOf(cells, tag, scope) {
  const row = document.createElement("tr");
  row.append(...cells.map((text, i) => {
    const cell = node(i === 0 ? "th" : tag, text);
    if (i === 0 || scope) cell.scope = scope ?? "row";
    return cell;
  }));
  return row;
}

/** An action that waits until the calls of it have paused. */
export function debounce(action, milliseconds) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(action, milliseconds); };
}
