// Many persons: the form of a panel and its groups; sums, means, gaps and lifetimes with their 90 % bands.
/* global d3 */

import { endOthers, startCall } from "./calls.js";
import { drawBand, drawLifetimeRows } from "./charts.js";
import { choose, element, fillSelect, valuesOf } from "./elements.js";
import { hasColumn, lastValue, parseEntrants, parsePersons, readText } from "./records.js";
import { describeGap, describeScenario, describeTotal, figureText, SCENARIOS } from "./sentences.js";

const REQUIRED = ["person_id", "year", "birth_year", "earnings"]; // of a file
const PAIR = ["compare", "against"];
const GROUPS = ["by", "within"];
export const INPUTS = ["persons", ...GROUPS, ...PAIR, "until", "scenario", "paths", "joining"];
const COMPUTED = { age: "age, ten years", cohort: "birth, ten years", birth_year: "year of birth" };
const SAID = { age: "aged ", cohort: "born ", birth_year: "born " }; // before a level, which is a number
const EXAMPLE = "example";
const MOST_CHARTS = 12; // of groups; the table has all
const FIRST_PATHS = 20; // of the first view of a panel
const TOTAL = "total"; // the level of a margin
const LIFETIMES = ["lifetime_mean", "lifetime_p10", "lifetime_p50", "lifetime_p90"];

let service = null; // what the page has read: model, columns
const panels = new Map(); // example and file: name, and persons of CSV or bytes of Parquet
let joining = []; // rows of the file of those who join
const levels = new Map(); // of groups without codes, as the last answer has them

/** Calls `update` after another choice, `read` with a file, after which it is to `ask`. */
export function listen({ update, ask, read }) {
  element("panel").addEventListener("change", () => read("panel", readFile, ask));
  element("joining-file").addEventListener("change", () => read("joining-file", readJoining, ask));
  for (const id of INPUTS) {
    element(id).addEventListener("change", () => {
      if (id === "persons") fillGroups();
      if (id === "by") fillPair();
      update();
    });
  }
}

/** Fills the selections, and reads the example if its currency is that of the bundle. */
export async function load(read) {
  service = read;
  if (service.model.currency === "SEK") {
    const persons = parsePersons(await (await fetch("explorer/example_panel.csv")).text(), service.columns);
    panels.set(EXAMPLE, { name: `Example: ${persons.size} simulated persons`, persons: [...persons.values()], answers: new Map(), ends: new Map() });
  }
  fillPanels();
  fillGroups();
  choose("by", "sex");
}

/** Fills the form from an entry of the tab's history, or from an address; says what is missing for a forecast. */
export function restore(entry, link) {
  const form = entry ?? Object.fromEntries(link);
  // Of groups without codes only an answer tells all levels.
  if (form.against && !codesOf(form.by) && !levels.has(form.by)) levels.set(form.by, PAIR.map((id) => form[id]).filter(Boolean));
  for (const id of INPUTS) {
    if (id === GROUPS[0]) fillGroups();
    if (id === PAIR[0]) fillPair();
    choose(id, form[id]);
  }
  const isOwn = (form.persons ?? EXAMPLE) !== EXAMPLE;
  if (isOwn && !panels.has(form.persons)) return "The link has the options, but not the file. Choose the file to see its forecast.";
  if (form.joining && !joining.length) return "The link has the options, but not the file of those who join. Choose it to see its forecast.";
  return panels.has(element("persons").value) ? "" : "Choose a file of persons, one row a person and year.";
}

/** The options that an address may have: nothing that only a file of the user knows. */
export function linkOptions() {
  const { compare, against, ...options } = valuesOf(INPUTS);
  return options.persons === EXAMPLE ? { ...options, compare, against } : options;
}

/** Offers the panels; nothing is chosen if there are none, or if the file of the name `unread` is not read. */
function fillPanels(unread = "") {
  const none = unread ? [["", `none: ${unread} is not read`]] : panels.size ? [] : [["", "none yet"]];
  fillSelect("persons", [...none, ...[...panels].map(([id, panel]) => [id, panel.name])]);
  if (none.length) choose("persons", "");
}

/** Reads the chosen file: CSV as the records of the other view, Parquet as the bytes that are sent. */
async function readFile(file) {
  panels.delete("file"); // a refused file must not leave the one before in its place
  fillPanels(file.name);
  const isTable = file.name.toLowerCase().endsWith(".parquet");
  const persons = isTable ? undefined : [...parsePersons(await readText(file), service.columns, REQUIRED).values()];
  panels.set("file", { name: persons ? `${file.name}: ${persons.length} persons` : file.name, persons, table: isTable ? file : undefined, answers: new Map(), ends: new Map() });
  fillPanels();
  choose("persons", "file");
  fillGroups();
}

/** Reads the chosen file of those who join. */
async function readJoining(file) {
  joining = [];
  fillSelect("joining", [["", "nobody"]]);
  joining = parseEntrants(await readText(file));
  fillSelect("joining", [["", "nobody"], ["file", `${file.name}: ${joining.length} rows`]]);
  choose("joining", "file");
}

/** Offers the groups of the chosen panel: categories that somebody's record has; of a table all, because it is not read here. */
function fillGroups() {
  const persons = panels.get(element("persons").value)?.persons;
  const categories = [...service.columns, ...(service.extra ?? [])].filter((column) => column.kind === "category").map(({ name }) => name);
  const first = ["sex", "education_level", ...Object.keys(COMPUTED)];
  const groups = [...first, ...categories.filter((name) => !first.includes(name))]
    .filter((name) => COMPUTED[name] || !persons || persons.some((person) => hasColumn(person, name)))
    .map((name) => [name, COMPUTED[name] ?? words(name)]);
  fillSelect("by", [["", "no groups"], ...groups]);
  fillSelect("within", [["", "no further groups"], ...groups]);
  fillPair();
}

/** Offers the levels of the first group for a comparison: the codes that the panel has, or those of the last answer. */
function fillPair() {
  const by = element("by").value;
  const codes = codesOf(by);
  const persons = panels.get(element("persons").value)?.persons;
  const present = codes && persons ? new Set(persons.map((person) => lastValue(person, by))) : null;
  const known = codes ? codes.filter((code) => !present || present.has(code)) : levels.get(by) ?? [];
  const isOther = known.join() !== [...element("against").options].map((option) => option.value).join();
  fillSelect("compare", [["", "nothing"], ...known.map((level) => [level, words(level)])]);
  fillSelect("against", known.map((level) => [level, words(level)]));
  if (isOther && codes && known.length > 1) {
    choose("compare", known.at(-1));
    choose("against", known[0]);
  }
  for (const id of PAIR) element(`${id}-field`).hidden = known.length < 2;
}

/** What the page shows of the panel of the form, under the scenario too if one is chosen. */
export async function* compute({ prices, rate }) {
  const form = valuesOf(INPUTS);
  const panel = panels.get(form.persons);
  if (!panel) throw new Error("Choose a file of persons, one row a person and year.");
  const by = [...new Set([form.by, form.within].filter(Boolean))];
  const compare = form.compare && form.compare !== form.against ? [`${form.compare}/${form.against}`] : [];
  // Those who join go through a recession at another time: see the page of policy tables.
  if (form.joining && form.scenario) throw new Error("The effect of a scenario is known of these persons only. Choose nobody who joins later, or no scenario.");
  const inflow = (form.joining ? joining : []).map((row) => (panel.table ? [row.year, row.age, row.persons, row.sex ?? ""].join(":") : row));
  const first = { prices, rate, by, compare, inflow, until: Number(form.until), paths: FIRST_PATHS };
  const whose = JSON.stringify([first.until, inflow]);
  const present = (answers, pending) => ({ ...contentOf(answers, panel.name, by, compare[0], SCENARIOS[form.scenario], inflow.length > 0), pending });
  if (!panel.ends.has(whose)) {
    // The first view does not wait for all futures, and tells in which year the last person is 64.
    endOthers([panel.answers.get(JSON.stringify(first))]);
    const few = await answerOf(panel, first);
    panel.ends.set(whose, d3.max(few.groups, (row) => row.year));
    yield { ...present([few], `These are ${FIRST_PATHS} futures; computing all ${form.paths}.`), isPreliminary: true };
  }
  const events = compare.map((pair) => `mean_ratio ${pair} ${panel.ends.get(whose)} < 1`);
  const request = { ...first, events, paths: Number(form.paths) };
  const changed = form.scenario && { ...request, scenario: form.scenario, reference: "baseline" };
  endOthers([request, changed].map((each) => panel.answers.get(JSON.stringify(each))));
  const base = await answerOf(panel, request);
  yield present([base], form.scenario && "Computing the scenario.");
  if (changed) yield present([base, await answerOf(panel, changed)]);
}

/** The answer of the service, or the same one as before: the same request has the same numbers. */
function answerOf(panel, request) {
  const asked = JSON.stringify(request);
  if (!panel.answers.has(asked)) {
    const answer = startCall("v1/populations", { ...request, persons: panel.persons }, panel.table);
    panel.answers.set(asked, answer);
    answer.catch(() => panel.answers.delete(asked));
  }
  return panel.answers.get(asked);
}

/** The rows of an answer, by statistic and group. */
class Statistics {
  constructor({ groups }) {
    this.rows = d3.group(groups, (row) => keyOf(row.statistic, row));
  }

  /** A statistic of a group, one row a year; of lifetimes, one row. */
  of(statistic, cell) {
    return this.rows.get(keyOf(statistic, cell)) ?? [];
  }
}

function keyOf(statistic, { group }) {
  return [statistic, ...Object.values(group)].join("\n");
}

/** What the page shows of one answer, or of two with a scenario. */
function contentOf(answers, panel, by, pair, scenario, hasJoined) {
  const tables = answers.map((answer) => new Statistics(answer));
  const [base, changed] = tables;
  const { currency, price_year: year } = answers[0].provenance;
  const unit = `${currency} of ${year}`;
  const cells = cellsOf(answers[0].groups);
  const everybody = cells.at(-1);
  const inside = cells.filter(({ group }) => !Object.values(group).includes(TOTAL));
  const groups = (by.length ? inside : [everybody]).filter((cell) => !cell.suppressed);
  if (cells.every((cell) => cell.suppressed)) {
    throw new Error("Every figure is hidden: fewer than ten persons can be forecast up to that year. Choose an earlier year or more persons.");
  }
  if (by.length && !codesOf(by[0])) {
    levels.set(by[0], [...new Set(inside.map(({ group }) => group[by[0]]))]);
    fillPair();
  }
  const compared = pair && { label: pair.split("/").map(words).join(" over "), group: { ...everybody.group, [by[0]]: pair } };
  const figures = [
    ...(everybody.suppressed ? [] : [["Sum of earnings", "total", everybody]]),
    ...(compared ? [[`Mean earnings, ${compared.label}`, "mean_ratio", compared]] : []),
    ...groups.slice(0, MOST_CHARTS).map((cell) => [`Mean earnings: ${cell.label}`, "mean", cell]),
  ].filter(([, ...which]) => base.of(...which).some((row) => row.value !== null));
  const finding = (caption, rows) => `${caption}: ${figureText(rows[0]).replace(/ \(.*/, "")} in ${rows[0].year}, ${figureText(rows.at(-1))} in ${rows.at(-1).year}`;
  const limits = (statistic) => figures.filter((each) => each[1] === statistic)
    .flatMap(([, ...which]) => tables.flatMap((table) => table.of(...which)))
    .flatMap((row) => [row.lower_90 ?? row.value, row.upper_90 ?? row.value]);
  const means = groups.map((cell) => base.of("mean", cell));
  const totals = base.of("total", everybody);
  const shownLifetimes = [...groups, ...(by.length && !everybody.suppressed ? [everybody] : [])];
  return {
    who: `${panel}, ${totals[0].year} to ${totals.at(-1).year}. ${hasJoined ? "Those of your file join" : "Nobody joins"} them, and those older than 64 leave`,
    sentences: describe(tables, everybody, by.length ? groups.slice(0, MOST_CHARTS) : [], compared, pair, answers[0].events, scenario, unit, hasJoined),
    warnings: cautionsOf(answers[0], inside, groups.length),
    legend: `Line: mean of the simulated futures. Shade: 90 % band.${means.length > 1 ? " Grey: other groups." : ""}${changed ? ` Brown, with dashes: ${scenario}.` : ""}`,
    scenario: changed && scenario,
    figures: figures.map(([caption, statistic, cell]) => {
      const rows = base.of(statistic, cell);
      const isRatio = statistic === "mean_ratio";
      return {
        caption: finding(caption, rows),
        draw: (width) => [drawBand(rows, {
          width,
          scenario: changed?.of(statistic, cell),
          others: statistic === "mean" ? means : [],
          domain: isRatio ? d3.extent([1, ...limits(statistic)]) : [0, d3.max(limits(statistic))],
          label: isRatio ? "times" : `${unit} a year`,
          rule: isRatio ? 1 : 0,
          description: `${finding(caption, rows)}. The range is the 90 % band.`,
        })],
      };
    }),
    lifeFigures: [{ caption: "", draw: (width) => [drawLifetimes(shownLifetimes, tables, scenario, unit, width)] }],
    tables: tables.flatMap((table, i) => tablesOf(table, cells, compared, i ? `, with ${scenario}` : "", unit)),
    rows: answers.flatMap((answer) => answer.groups.map(({ group, ...row }) => ({ scenario: answer.provenance.scenario, ...group, ...row }))),
    provenance: answers[0].provenance,
  };
}

/** The cells of an answer with a name; that of everybody comes last. */
function cellsOf(rows) {
  const cells = d3.groups(rows.filter((row) => row.statistic === "persons"), (row) => keyOf("", row)).map(([, of]) => ({
    group: of[0].group,
    label: Object.entries(of[0].group).filter(([, level]) => level !== TOTAL)
      .map(([name, level]) => `${SAID[name] ?? ""}${words(level)}`).join(", ") || "all",
    suppressed: of[0].suppressed,
    isEmpty: of.every((row) => row.value === 0),
  }));
  return cells.filter((cell) => !cell.isEmpty).sort((a, b) => isWhole(a) - isWhole(b));
}

function isWhole({ group }) {
  return Object.values(group).every((level) => level === TOTAL);
}

/** The range of what a scenario changes. */
const rangeOf = (row) => [row.effect_lower_90, row.effect_upper_90];

function describe([base, changed], everybody, groups, compared, pair, events, scenario, unit, hasJoined) {
  const ends = (table, statistic, cell) => [0, -1].map((at) => table.of(statistic, cell).at(at));
  const isShown = (rows) => rows.every((row) => row && row.value !== null);
  const sentences = [];
  const [first, last] = ends(base, "total", everybody);
  if (isShown([first, last])) sentences.push(describeTotal(first, last, base.of("persons", everybody).at(-1).value, unit, hasJoined));
  const ratios = compared ? ends(base, "mean_ratio", compared) : [];
  if (compared && isShown(ratios)) sentences.push(describeGap(...ratios, pair.split("/").map(words), events[0]));
  if (changed && isShown([last])) {
    const sums = d3.zip(...[base, changed].map((table) => table.of("total", everybody)))
      .map(([{ year, value }, after]) => [`the sum of ${year}`, value, after.value, rangeOf(after)]);
    const most = d3.greatest(sums, ([, before, after]) => Math.abs(after / before - 1));
    const lifetime = (label, cell) => {
      const [before, after] = [base, changed].map((table) => table.of("lifetime_mean", cell)[0]);
      return [label, before.value, after.value, rangeOf(after)];
    };
    sentences.push(describeScenario(scenario, [
      ...new Set([most, sums.at(-1)]),
      lifetime("the mean present value of a lifetime", everybody),
      ...groups.map((cell) => lifetime(`that of the group ${cell.label}`, cell)).filter(([, before, after]) => before && after),
    ]));
  }
  return sentences;
}

/** What a reader must know: warnings, who is left out, and which groups are hidden. */
function cautionsOf({ warnings, left_out: leftOut }, inside, nShown) {
  const others = warnings.filter(({ code }) => code !== "simulated-people");
  const ofPersons = d3.groups(others.filter((warning) => warning.person_id), (warning) => warning.code);
  const reasons = d3.groups(leftOut, (problem) => problem.message).map(([message, of]) => `${message} (${of.length})`);
  const hidden = inside.filter((cell) => cell.suppressed).map((cell) => cell.label);
  return [
    ...(hidden.length ? [`Hidden are groups of fewer than ten persons, and groups that would tell them: ${hidden.length > MOST_CHARTS ? `${hidden.length} groups` : hidden.join("; ")}.`] : []),
    ...(nShown > MOST_CHARTS ? [`The charts show the first ${MOST_CHARTS} of ${nShown} groups; the table has all.`] : []),
    ...(leftOut.length ? [`${leftOut.length === 1 ? "1 person cannot be forecast and is" : `${leftOut.length} persons cannot be forecast and are`} left out: ${reasons.join("; ")}.`] : []),
    ...others.filter((warning) => !warning.person_id).map((warning) => warning.message),
    ...ofPersons.map(([, of]) => `${of.length === 1 ? "1 record" : `${of.length} records`}: ${of[0].message}`),
  ];
}

function drawLifetimes(cells, tables, scenario, unit, width) {
  const rows = cells.flatMap((cell) => tables.map((table, i) => ({
    label: `${cell.label}${i ? `, with ${scenario}` : ""}`,
    colour: `var(--${i ? "other" : "median"})`,
    ...Object.fromEntries(LIFETIMES.map((name) => [name, table.of(name, cell)[0]])),
  })));
  const told = rows.map((row) => `${row.label} ${figureText(row.lifetime_p50)}`).join("; ");
  return drawLifetimeRows(rows, { width, unit, description: `Present values of lifetimes by group, median with its 90 % band: ${told}.` });
}

/** The numbers by year and of lifetimes as tables. */
function tablesOf(table, cells, compared, suffix, unit) {
  const years = (heads, columns) => ({
    head: ["Year", ...heads],
    rows: columns[0].map((row, i) => [row.year, ...columns.map((column) => figureText(column[i]))]),
  });
  const everybody = cells.at(-1);
  const open = cells.filter((cell) => !cell.suppressed);
  const whole = [table.of("persons", everybody), table.of("total", everybody), ...(compared ? [table.of("mean_ratio", compared)] : [])];
  return [
    { caption: `Sum of earnings, ${unit}${suffix}`, ...years(["Persons", "Sum", ...(compared ? [compared.label] : [])], whole) },
    { caption: `Mean earnings, ${unit}${suffix}`, ...years(open.map((cell) => cell.label), open.map((cell) => table.of("mean", cell))) },
    {
      caption: `Present value of earnings to age 64, ${unit}${suffix}`,
      head: ["Group", "Mean", "10 % have less", "Half have less", "90 % have less"],
      rows: open.map((cell) => [cell.label, ...LIFETIMES.map((name) => figureText(table.of(name, cell)[0]))]),
    },
  ];
}

function codesOf(group) {
  const codes = service.columns.find(({ name }) => name === group)?.codes ?? [];
  return codes.length ? codes : null;
}

function words(name) {
  return name.replaceAll("_", " ");
}
