// Downloads: the figures as one SVG or PNG with title and source, and the numbers as CSV.
/* global d3 */

const NAMESPACE = "http://www.w3.org/2000/svg";
const LINE = 17;
const MARGIN = 14;

/** One SVG text of figures with their captions, two in a row, below lines of text, in the colours of the page on white. */
export function joinFigures(figures, lines) {
  const sizeOf = (svg, name) => Number(svg.getAttribute(name));
  const column = d3.max(figures, ({ svgs }) => d3.max(svgs, (svg) => sizeOf(svg, "width"))) + MARGIN;
  const width = column * Math.min(2, figures.length) + MARGIN;
  const wrapped = lines.flatMap((line) => wrapText(line, Math.floor(width / 6.6)));
  const root = document.createElementNS(NAMESPACE, "svg");
  const page = add(root, "rect", { fill: "#ffffff" });
  wrapped.forEach((line, i) => { add(root, "text", { x: MARGIN, y: LINE * (i + 1) }).textContent = line; });
  let top = LINE * (wrapped.length + 1);
  let bottom = top;
  figures.forEach(({ caption, svgs }, i) => {
    if (i % 2 === 0) top = bottom;
    const x = MARGIN + (i % 2) * column;
    let y = top;
    for (const line of wrapText(caption, Math.floor(column / 7.6))) {
      y += LINE;
      add(root, "text", { x, y, "font-weight": "bold" }).textContent = line;
    }
    y += MARGIN / 2;
    for (const svg of svgs) {
      const copy = svg.cloneNode(true);
      copy.setAttribute("x", x);
      copy.setAttribute("y", y);
      root.append(copy);
      y += sizeOf(svg, "height");
    }
    bottom = Math.max(bottom, y + MARGIN);
  });
  setAttributes(page, { width, height: bottom });
  setAttributes(root, { width, height: bottom, viewBox: `0 0 ${width} ${bottom}`, "font-family": "Arial, sans-serif", "font-size": 12, fill: "#1c2430", color: "#1c2430" });
  const light = { ink: "#1c2430", paper: "#ffffff", soft: "#57606a", line: "#c3cad3", median: "#08306b", set: "#3d86d6", zero: "#8a5a12", other: "#9a5b00" };
  return new XMLSerializer().serializeToString(root).replace(/var\(--(\w+)\)/g, (_, name) => light[name]);
}

function setAttributes(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
}

function add(parent, name, attributes) {
  const element = document.createElementNS(NAMESPACE, name);
  setAttributes(element, attributes);
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

/** Let the browser save content under a name. */
export function saveFile(content, type, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
