// Charts: fan, chance of no earnings and lifetime of one person; fans and lifetimes of groups.
/* global Plot, d3 */

import { figureText, isTested, namedSet, sentenceYear, setText, share } from "./sentences.js";

const RANGES = [[0.9, 0.05, 0.95, 0.22], [0.8, 0.1, 0.9, 0.3], [0.5, 0.25, 0.75, 0.5]]; // coverage, quantiles and opacity, from wide to narrow
export const QUANTILES = [0.5, ...RANGES.flatMap(([, from, to]) => [from, to])];
const STYLE = "saga-plot"; // the class of all charts: the content policy allows exactly its style
const NARROW = 480;
const ZERO_TOPS = [0.1, 0.2, 0.5, 1]; // of the axis of the chance: a chance of 4 % is to be seen

/** The largest amount that the fan of a case shows. */
export function topAmount(person, horizons) {
  const set = namedSet(sentenceYear(horizons));
  return d3.max([...person.history.map((year) => year.earnings), ...horizons.map((row) => row.quantiles["0.95"]), set?.upper]);
}

/** Record, median, the middle of the forecast by year, and the set of the year that the sentence is about. */
export function drawFan(person, horizons, { width, top, unit, description }) {
  const record = person.history.filter((year) => year.earnings !== undefined && year.earnings !== null);
  const earnings = new Map(record.map((row) => [row.year, row.earnings]));
  const [first, last] = d3.extent(earnings.keys());
  // A year without a row breaks the line: it must not look like a year with earnings in between.
  const line = d3.range(first, last + 1).map((year) => ({ year, earnings: earnings.get(year) }));
  const median = { x: "year", y: (row) => row.quantiles["0.5"] };
  return draw({
    width,
    height: width < NARROW ? 238 : 308,
    marginTop: 28,
    description,
    x: yearScale(person, horizons, width),
    y: { domain: [0, top], nice: true, grid: true, label: `${unit} a year`, ticks: 5, tickFormat: width < NARROW ? shortAmount : ",.0f" },
    marks: [
      ...RANGES.flatMap((range) => drawRanges(horizons, range)),
      Plot.lineY(horizons, { ...median, stroke: "var(--median)", strokeWidth: 2.2 }),
      horizons.length === 1 ? Plot.dot(horizons, { ...median, fill: "var(--median)" }) : null,
      ...drawSet(sentenceYear(horizons)),
      Plot.lineY(line, { x: "year", y: "earnings", stroke: "var(--ink)", strokeWidth: 1.5 }),
      Plot.dot(record, { x: "year", y: "earnings", fill: "var(--ink)", r: 2.2 }),
      Plot.tip(horizons, Plot.pointerX({ ...median, title: tipText, fill: "var(--paper)", stroke: "var(--soft)" })),
    ],
  });
}

/** The range between two quantiles by year: shades, a bar where a year stands alone, and dashed outlines where its coverage was not tested. */
function drawRanges(horizons, [coverage, from, to, opacity]) {
  const rows = horizons.map((row) => ({ year: row.year, from: row.quantiles[from], to: row.quantiles[to], tested: isTested(row.intervals.find((x) => x.coverage === coverage)) }));
  const isKind = (row, tested) => row !== undefined && row.tested === tested;
  const isBeside = (i, tested) => isKind(rows[i - 1], tested) || isKind(rows[i + 1], tested);
  const shaded = rows.map((row, i) => row.tested && isBeside(i, true));
  const outlined = rows.map((row, i) => !row.tested || isBeside(i, false));
  const of = (flags) => (end) => (row, i) => (flags[i] ? row[end] : NaN); // NaN breaks a shade and a line
  const outline = { stroke: "var(--median)", strokeWidth: 1.2, strokeDasharray: "4 3" };
  const [y1, y2] = ["from", "to"].map(of(shaded));
  const alone = rows.filter((row, i) => row.tested && !shaded[i]);
  const outlinedAlone = rows.filter((row, i) => !row.tested && !isBeside(i, true) && !isBeside(i, false));
  return [
    Plot.areaY(rows, { x: "year", y1, y2, fill: "var(--set)", fillOpacity: opacity }),
    Plot.ruleX(alone, { x: "year", y1: "from", y2: "to", stroke: "var(--set)", strokeOpacity: opacity, strokeWidth: 9 }),
    ...["from", "to"].map((end) => Plot.lineY(rows, { x: "year", y: of(outlined)(end), ...outline })),
    Plot.ruleX(outlinedAlone, { x: "year", y1: "from", y2: "to", ...outline }),
  ];
}

/** The set of a year: a line with its name above, and a circle where it includes a year without earnings. */
function drawSet(row) {
  const set = namedSet(row);
  if (!set) return [];
  const { year } = row;
  const ends = [set.lower ?? 0, set.upper];
  const stroke = "var(--ink)";
  return [
    Plot.ruleX([year], { y1: ends[0], y2: ends[1], stroke, strokeWidth: 1.5, strokeDasharray: isTested(set) ? null : "2 2" }),
    Plot.ruleY(ends, { x1: year - 0.25, x2: year + 0.25, stroke, strokeWidth: 1.5 }),
    set.includes_zero ? Plot.dot([year], { x: [year], y: [0], r: 3.5, stroke, fill: "var(--paper)", strokeWidth: 1.5 }) : null,
    Plot.text([`${100 * set.coverage} % set`], { x: [year], y: [ends[1]], dy: -9, fill: stroke }),
  ];
}

/** Whether a case shows a range whose coverage was not tested. */
export function hasUntested(horizons) {
  return horizons.some((row) => row.intervals.some((x) => x.coverage <= 0.9 && !isTested(x)));
}

function hasSet(interval) {
  return interval.upper !== null && interval.upper !== undefined;
}

function shortAmount(amount) {
  return amount ? d3.format("~s")(amount) : "0";
}

function tipText(row) {
  const amount = d3.format(",.0f");
  const sets = row.intervals.filter((x) => hasSet(x) && x.coverage <= 0.9);
  const lines = sets.map((x) => `${100 * x.coverage} % set: ${setText(x, amount)}`);
  return [row.year, `median: ${amount(row.quantiles["0.5"])}`, ...lines, `no earnings: ${d3.format(".0%")(row.p_zero)}`].join("\n");
}

/** The chance of no earnings by year, on an axis that fits chances up to `most`, with that of the year in the sentence as a number. */
export function drawZero(person, horizons, { width, most, description }) {
  const top = ZERO_TOPS.find((each) => most <= each);
  return draw({
    width,
    height: 105,
    marginTop: 30,
    description,
    x: { ...yearScale(person, horizons, width), axis: null },
    y: { domain: [0, top], ticks: [0, top / 2, top], tickFormat: ".0%", grid: true, label: "Chance of no earnings" },
    marks: [
      Plot.ruleX(horizons, { x: "year", y: "p_zero", stroke: "var(--zero)", strokeWidth: Math.max(3, 160 / horizons.length / 2.5) }),
      Plot.text([sentenceYear(horizons)], { x: "year", y: "p_zero", text: (row) => share(row.p_zero), dy: -8, fill: "var(--ink)", stroke: "var(--paper)", strokeWidth: 3 }),
    ],
  });
}

/** The distributions of a lifetime by name, each with its mean: earnings and, with a rule, tax and net. */
export function lifetimeParts(lifetime) {
  const { histogram, mean } = lifetime.present_value;
  const { tax } = lifetime;
  const gross = { name: "of earnings before tax", histogram, mean };
  return tax ? [gross, { name: "of tax", histogram: tax.tax_histogram, mean: tax.tax_mean },
    { name: "of earnings after tax", histogram: tax.net_histogram, mean: tax.net_mean }] : [gross];
}

/** A distribution of a lifetime, with its mean. */
export function drawLifetime({ name, histogram, mean }, { width, domain, top, unit, description }) {
  const { edges, shares } = histogram;
  const bars = shares.map((share, i) => ({ from: edges[i], to: edges[i + 1], density: share / (edges[i + 1] - edges[i]) }));
  return draw({
    width,
    height: 118,
    description,
    x: { domain, label: `Present value ${name}, ${unit}`, tickFormat: shortAmount, ticks: 5 },
    y: { domain: [0, top], axis: null },
    marginBottom: 44,
    marks: [
      Plot.rect(bars, { x1: "from", x2: "to", y1: 0, y2: "density", fill: "var(--set)", fillOpacity: 0.6 }),
      Plot.ruleX([mean], { stroke: "var(--median)", strokeWidth: 2 }),
      Plot.ruleY([0], { stroke: "var(--soft)" }),
    ],
  });
}

/** The highest bar of a lifetime distribution, as a density. */
export function topDensity({ histogram: { edges, shares } }) {
  return d3.max(shares, (share, i) => share / (edges[i + 1] - edges[i]));
}

/** The mean over paths of a statistic by year with its 90 % band; a scenario as dashed lines, further groups in grey. */
export function drawBand(rows, { width, domain, label, scenario = [], others = [], rule, description }) {
  const known = (all) => all.filter((row) => row.value !== null);
  const [own, changed] = [known(rows), known(scenario)];
  const line = (all, options) => Plot.lineY(all, { x: "year", y: "value", ...options });
  const limit = (y) => Plot.lineY(changed, { x: "year", y, stroke: "var(--other)", strokeWidth: 1.2, strokeDasharray: "4 3" });
  const text = (row) => [row.year, figureText(row), ...changed.filter((each) => each.year === row.year).map((each) => `scenario: ${figureText(each)}`)].join("\n");
  return draw({
    width,
    height: width < NARROW ? 218 : 248,
    marginTop: 28,
    description,
    marginRight: 22,
    x: { label: null, tickFormat: "d", ticks: Math.min(own.length, 4) },
    y: { domain, nice: true, grid: true, label, ticks: 5, tickFormat: domain[1] < 100 ? "~g" : shortAmount },
    marks: [
      Plot.ruleY([rule], { stroke: "var(--soft)" }),
      Plot.areaY(own, { x: "year", y1: "lower_90", y2: "upper_90", fill: "var(--set)", fillOpacity: 0.3 }),
      ...others.map((each) => line(known(each), { stroke: "var(--soft)", strokeOpacity: 0.6 })),
      limit("lower_90"),
      limit("upper_90"),
      line(changed, { stroke: "var(--other)", strokeWidth: 2.2 }),
      line(own, { stroke: "var(--median)", strokeWidth: 2.2 }),
      Plot.dot(own.slice(-1), { x: "year", y: "value", fill: "var(--median)" }),
      Plot.tip(own, Plot.pointerX({ x: "year", y: "value", title: text, fill: "var(--paper)", stroke: "var(--soft)" })),
    ],
  });
}

/** Lifetimes of groups, one row each: 10 to 90 % of persons as a line, their median as a dot, the 90 % bands of the three as bars. */
export function drawLifetimeRows(rows, { width, unit, description }) {
  const levels = ["lifetime_p10", "lifetime_p50", "lifetime_p90"];
  const bars = rows.flatMap((row) => levels.map((name) => ({ ...row[name], row: row.label, colour: row.colour })));
  const of = { y: "row", stroke: "colour" };
  return draw({
    width,
    height: 40 + 34 * rows.length,
    marginLeft: 14,
    marginBottom: 40,
    description,
    x: { domain: [0, d3.max(bars, (bar) => bar.upper_90)], nice: true, grid: true, label: `Present value of earnings to age 64, ${unit}`, tickFormat: shortAmount, ticks: 5 },
    y: { domain: rows.map((row) => row.label), axis: null },
    color: { type: "identity" },
    marks: [
      Plot.ruleY(rows, { x1: (row) => row.lifetime_p10.value, x2: (row) => row.lifetime_p90.value, y: "label", stroke: "colour", strokeWidth: 2 }),
      Plot.ruleY(bars, { ...of, x1: "lower_90", x2: "upper_90", strokeOpacity: 0.35, strokeWidth: 9 }),
      Plot.dot(bars.filter((bar) => bar.statistic === "lifetime_p50"), { ...of, x: "value", fill: "var(--paper)", strokeWidth: 2, r: 4 }),
      Plot.text(rows, { x: 0, y: "label", text: "label", dy: -11, textAnchor: "start" }),
    ],
  });
}

function yearScale(person, horizons, width) {
  const years = [...person.history, ...horizons].map((row) => row.year);
  return { domain: [d3.min(years) - 0.5, d3.max(years) + 0.5], label: null, tickFormat: "d", ticks: width < NARROW ? 4 : 6 };
}

function draw({ description, ...options }) {
  const svg = Plot.plot({ className: STYLE, marginLeft: 62, marginRight: 14, style: { fontSize: "12px" }, ...options });
  for (const group of svg.querySelectorAll("[aria-label]")) group.removeAttribute("aria-label"); // one label for all
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", description);
  return svg;
}
