// One person: the form of a record and a change of it; the forecast and lifetime of one or two cases.
/* global d3 */

import { endOthers, startCall } from "./calls.js";
import { drawFan, drawLifetime, drawZero, hasUntested, lifetimeParts, QUANTILES, topAmount, topDensity } from "./charts.js";
import { choose, element, fillSelect, valuesOf } from "./elements.js";
import { changePerson, formatRecord, hasColumn, isSameRecord, lastValue, OWN, parsePersons, readText, readYear } from "./records.js";
import { about, describeChange, describeLifetime, describePerson, describeYear, explainRise, SCENARIOS, sentenceYear, setText, share } from "./sentences.js";

const FIELDS = ["birth_year", "sex", "education_level"];
const COVERAGE = [0.5, 0.8, 0.9];
const OPTIONS = ["years", "change", "to"];
export const INPUTS = ["example", ...FIELDS, "record", ...OPTIONS];

let service = null; // what the page has read: model, columns, prices
let examples = new Map();
let filePersons = new Map();
let filled = new Set(); // the fields that nobody has edited since the record came
let entered = ""; // the record as the fields know it

/** Calls `update` after another choice, `warn` after an edit of the record, `read` with a file. */
export function listen({ update, warn, read }) {
  element("example").addEventListener("change", () => { showExample(); update(); });
  element("file-person").addEventListener("change", () => { showFilePerson(); update(); });
  element("file").addEventListener("change", () => read("file", readFile, warn));
  element("record").addEventListener("input", changeRecord);
  for (const id of FIELDS) element(id).addEventListener("input", () => { filled.delete(id); });
  for (const id of [...FIELDS, "record"]) {
    element(id).addEventListener("input", () => {
      element("example").value = "";
      fillTargets();
      warn();
    });
  }
  element("change").addEventListener("change", () => { fillTargets(); update(); });
  for (const id of ["years", "to"]) element(id).addEventListener("change", update);
}

/** Fills the selections, and reads the examples if their currency is that of the bundle. */
export async function load(read) {
  service = read;
  const levels = service.columns.find((column) => column.name === "education_level").codes;
  fillSelect("education_level", [["", "unknown"], ...levels.map((code) => [code, code.replace("_", " ")])]);
  if (service.model.currency === "SEK") {
    examples = parsePersons(await (await fetch("explorer/example_people.csv")).text(), service.columns);
    fillSelect("example", [["", "Own record"], ...[...examples.keys()].map((name) => [name, nameOf(name)])]);
  }
}

/** Fills the form from an entry of the tab's history, or from an address; says what is missing for a forecast. */
export function restore(entry, link) {
  const known = examples.has(link.get("example")) ? link.get("example") : "";
  const form = entry ?? { ...Object.fromEntries(link), example: link.has("example") ? known : [...examples.keys()][0] ?? "" };
  for (const id of [...FIELDS, "record"]) element(id).value = form[id] ?? "";
  element("example").value = form.example;
  if (!entry) showExample();
  openFields();
  for (const name of OPTIONS) {
    if (name === "to") fillTargets();
    choose(name, form[name]);
  }
  if (link.get("example") === "" && !entry) return "The link has the options of an own record, but not the record. Enter it to see a forecast.";
  return element("record").value || link.get("example") ? "" : "Enter a record, then press “Show the forecast”.";
}

/** The options that an address may have: nothing of an own record. */
export function linkOptions() {
  const { to, ...options } = valuesOf(["example", ...OPTIONS]);
  return options.change === "year" && !options.example ? options : { ...options, to };
}

function showExample() {
  const person = examples.get(element("example").value);
  if (!person) return;
  for (const name of FIELDS) element(name).value = lastValue(person, name) ?? "";
  fillRecord(formatRecord(person, ["person_id", ...FIELDS]));
}

function showFilePerson() {
  element("example").value = "";
  for (const name of FIELDS) element(name).value = "";
  fillRecord(formatRecord(filePersons.get(element("file-person").value), []));
}

function fillRecord(text) {
  element("record").value = text;
  openFields();
  fillTargets();
}

/** The fields of columns that the record has show them and are closed: the record counts. */
function openFields() {
  let person;
  try {
    person = readRecord();
  } catch {
    person = null; // what is wrong is said when the forecast is asked for
  }
  for (const name of FIELDS) {
    const field = element(name);
    const isOfRecord = person !== null && hasColumn(person, name);
    if (isOfRecord) field.value = lastValue(person, name);
    field.disabled = isOfRecord;
  }
  filled = new Set(FIELDS);
  entered = element("record").value;
  element("file-person").value = person?.person_id ?? "";
  element("fields-hint").hidden = !FIELDS.some((name) => element(name).disabled);
}

/** After a change of the record: empties the fields whose column is gone, and those of another person, of whom nothing is left. */
function changeRecord() {
  const untouched = isSameRecord(entered, element("record").value) ? new Set() : filled;
  const edited = FIELDS.filter((name) => !filled.has(name));
  for (const name of FIELDS) if (element(name).disabled || untouched.has(name)) element(name).value = "";
  openFields();
  filled = new Set(FIELDS.filter((name) => !edited.includes(name)));
}

async function readFile(file) {
  filePersons = parsePersons(await readText(file), service.columns);
  fillSelect("file-person", [...filePersons.keys()].map((id) => [id, id]));
  element("file-person-field").hidden = filePersons.size < 2;
  showFilePerson();
}

function nameOf(id) {
  return examples.has(id) || id === OWN ? id[0].toUpperCase() + id.slice(1) : `Person ${id}`;
}

function readRecord() {
  const persons = parsePersons(element("record").value, service.columns);
  if (persons.size > 1) throw new Error("The record has several persons. Choose the file instead, or keep one.");
  return [...persons.values()][0];
}

/** The person of the form; columns of the record count, fields are for what it lacks. Throws Error with what is wrong. */
function readPerson() {
  const person = readRecord();
  person.person_id = element("example").value || person.person_id;
  const [born, sex, education] = FIELDS.map((name) => (hasColumn(person, name) ? "" : element(name).value));
  if (born) person.birth_year = readYear(born, "The year of birth");
  if (!hasColumn(person, "birth_year")) throw new Error("The year of birth is missing.");
  if (!hasColumn(person, "earnings")) throw new Error("The record has no known earnings: all cells are empty.");
  if (sex) person.sex = sex;
  return education ? changePerson(person, "education_level", education) : person;
}

/** The values that the chosen change can take. */
function fillTargets() {
  const change = element("change").value;
  let targets = [];
  if (change === "education_level") {
    const all = [...element("education_level").options].slice(1).map((option) => [option.value, option.text]);
    targets = all.filter(([code]) => code !== element("education_level").value);
  } else if (change === "scenario") {
    targets = Object.entries(SCENARIOS);
  } else if (change === "year") {
    try {
      const years = readPerson().history.filter((year) => year.earnings > 0).map((year) => year.year);
      targets = years.sort(d3.descending).map((year) => [year, year]);
    } catch {
      targets = [];
    }
  }
  const before = element("to").value;
  fillSelect("to", targets);
  if (targets.some(([value]) => String(value) === before)) element("to").value = before;
  element("to-field").hidden = !targets.length;
}

/** The cases to compute: the person, and the same person with one change. */
function readCases() {
  const person = readPerson();
  const [change, to] = [element("change").value, element("to").value];
  const cases = [{ label: "As it is", person }];
  if (change && to) {
    const words = {
      education_level: `the education ${to.replace("_", " ")}`,
      year: `no work in ${to}`,
      scenario: SCENARIOS[to],
    }[change];
    const scenario = change === "scenario" ? to : undefined;
    cases.push({ label: `With ${words}`, words, scenario, person: changePerson(person, change, to) });
  }
  return cases;
}

/** The forecast of the form, and then the same with lifetimes: what the page shows. */
export async function* compute({ prices, rate }) {
  const cases = readCases();
  endOthers();
  const horizons = d3.range(1, Number(element("years").value) + 1);
  const options = { prices, horizons, coverage: COVERAGE, quantiles: QUANTILES };
  const isGap = element("change").value === "year";
  const answers = await callAll("v1/forecasts", options, cases);
  cases.forEach((each, i) => {
    each.horizons = answers[i].forecasts[0].horizons;
    each.record = inRealMoney(each.person, prices);
  });
  const { provenance } = answers[0];
  const unit = `${provenance.currency} of ${provenance.price_year}`;
  const year = cases[0].horizons.length ? sentenceYear(cases[0].horizons) : null;
  if (!year) throw new Error("There is no year left to forecast: the person is 64 or older.");
  const sentences = [describeYear(year, unit)];
  if (cases.length > 1) {
    const changed = cases[1].horizons.find((row) => row.h === year.h);
    sentences.push(describeChange(year, changed, cases[1].words), ...(isGap ? [explainRise(year, changed)].filter(Boolean) : []));
  }
  const untested = cases.some((each) => hasUntested(each.horizons));
  const top = d3.max(cases, (each) => topAmount(each.record, each.horizons));
  const most = d3.max(cases.flatMap((each) => each.horizons), (row) => row.p_zero);
  const shown = {
    who: describePerson(nameOf(cases[0].person.person_id), cases[0].person, prices),
    sentences,
    warnings: cautionsOf(cases, answers),
    untested,
    legend: `Shades: the middle 50, 80 and 90 % of the forecast. Line: median. Upright line: the set of ${year.year}; a circle: it includes a year without earnings.${untested ? " Dashed: coverage not tested." : ""}`,
    figures: cases.map((each) => ({ caption: cases.length > 1 ? each.label : "", draw: (width) => drawCase(each, { width, top, most, unit }) })),
    tables: cases.map((each) => tableOfCase(each, unit)),
    rows: rowsOf(cases),
    provenance,
  };
  yield { ...shown, pending: "The forecast is shown; computing earnings until age 64." };
  const tax = unit.startsWith("SEK") ? "se-2022" : "none";
  const lifetimes = (await callAll("v1/lifetimes", { prices, rate, tax }, cases)).map((answer) => answer.lifetimes[0]);
  const parts = lifetimes.map(lifetimeParts);
  const domain = [0, d3.max(parts.flat().flatMap((part) => part.histogram.edges))];
  const topOf = (name) => d3.max(parts.flat().filter((part) => part.name === name), topDensity); // one scale for both cases
  yield {
    ...shown,
    lifeSentences: lifetimes.map((lifetime, i) => describeLifetime(lifetime, unit, cases[i].label)),
    lifeFigures: parts.map((ofCase, i) => ({
      ...shown.figures[i],
      draw: (width) => ofCase.map((part) => drawLifetime(part, {
        width,
        domain,
        top: topOf(part.name),
        unit,
        description: `${cases[i].label}: distribution of the simulated present value ${part.name}; the line is the mean, ${about(part.mean)} ${unit}.`,
      })),
    })),
  };
}

function callAll(path, options, cases) {
  return Promise.all(cases.map((each) => startCall(path, { ...options, scenario: each.scenario, persons: [each.person] })));
}

function drawCase({ label, record, horizons }, { width, top, most, unit }) {
  const text = `${label}: record, median and middle of the forecast by year. ${describeYear(sentenceYear(horizons), unit)}`;
  const zero = `${label}: chance of no earnings by year, ${share(horizons[0].p_zero)} in ${horizons[0].year} and ` +
    `${share(horizons.at(-1).p_zero)} in ${horizons.at(-1).year}.`;
  return [drawFan(record, horizons, { width, top, unit, description: text }), drawZero(record, horizons, { width, most, description: zero })];
}

function tableOfCase({ label, horizons }, unit) {
  return {
    caption: `${label}, ${unit} a year`,
    head: ["Year", "Median", ...COVERAGE.map((c) => `${100 * c} % set`), "No earnings"],
    rows: horizons.map((row) => [row.year, about(row.quantiles["0.5"]),
      ...COVERAGE.map((c) => setText(row.intervals.find((x) => x.coverage === c))), share(row.p_zero)]),
  };
}

/** The rows of the file: one a year of each case. */
function rowsOf(cases) {
  return cases.flatMap(({ label, horizons }) => horizons.map((row) => {
    const cells = { case: label, year: row.year, years_ahead: row.h, mean: row.mean, median: row.quantiles["0.5"], p_zero: row.p_zero };
    for (const set of row.intervals) {
      const name = Math.round(100 * set.coverage);
      Object.assign(cells, { [`lower_${name}`]: set.lower, [`upper_${name}`]: set.upper, [`includes_zero_${name}`]: set.includes_zero, [`guarantee_${name}`]: set.guarantee });
    }
    return cells;
  }));
}

/** The warnings of all cases as text; one that not all cases have names its case. */
function cautionsOf(cases, answers) {
  const messages = answers.map((answer) => answer.warnings
    .filter((warning) => !["simulated-people", "beyond-age"].includes(warning.code)).map((warning) => warning.message));
  const shared = messages[0].filter((text) => messages.every((others) => others.includes(text)));
  const others = messages.flatMap((texts, i) =>
    texts.filter((text) => !shared.includes(text)).map((text) => `${cases[i].label}: ${text}`));
  return [...shared, ...others];
}

/** The person with earnings in the prices of the forecast, as the service reads them. */
function inRealMoney(person, prices) {
  if (prices !== "nominal") return person;
  const { priceIndex, model } = service;
  const history = person.history.map((year) => {
    const factor = priceIndex[model.price_year] / priceIndex[year.year];
    return year.earnings === undefined ? year : { ...year, earnings: year.earnings * factor };
  });
  return { ...person, history };
}
