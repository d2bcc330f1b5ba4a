// The page: reads the form, calls the service, and shows record, forecast and lifetime of one or two cases.
/* global d3 */

import { CallError, callService, setKey } from "./calls.js";
import { drawFan, drawLifetime, drawZero, hasUntested, lifetimeParts, topAmount, topDensity } from "./charts.js";
import { csvOf, joinFigures, pngOf, saveFile } from "./downloads.js";
import { changePerson, formatRecord, hasColumn, isSameRecord, OWN, parsePersons, readYear, steadyValue } from "./records.js";
import { about, describeChange, describeLifetime, describePerson, describeYear, explainRise, sentenceYear, setText, share } from "./sentences.js";

const FIELDS = ["birth_year", "sex", "education_level"];
const COVERAGE = [0.5, 0.8, 0.9];
const SCENARIOS = { "recession-1990s": "a recession as in the 1990s", "high-growth": "high growth" };
const OPTIONS = ["years", "rate", "change", "to", "prices"];
const INPUTS = ["example", ...FIELDS, "record", ...OPTIONS];
const CHANGED = "The form has changed. The forecast below is of the record that it names.";
const SIMULATED = "Simulated people, not real: the bundle was trained on simulated people.";

const element = (id) => document.getElementById(id);
let model = null; // the answer of GET /v1/model
let columns = []; // of GET /v1/variables
let priceIndex = {}; // Swedish consumer prices by year
let examples = new Map();
let filePersons = new Map();
let shown = null; // what the page shows: cases, provenance, sentence
let latest = 0; // number of the last request
let filled = new Set(); // the fields that nobody has edited since the record came
let entered = ""; // the record as the fields know it

async function start() {
  element("form").addEventListener("submit", (event) => { event.preventDefault(); showForecast(); });
  element("key").addEventListener("change", async () => { setKey(element("key").value); await load(); });
  element("example").addEventListener("change", () => { showExample(); update(); });
  element("file-person").addEventListener("change", () => { showFilePerson(); update(); });
  element("file").addEventListener("change", readFile);
  element("record").addEventListener("input", changeRecord);
  for (const id of FIELDS) element(id).addEventListener("input", () => { filled.delete(id); });
  for (const id of [...FIELDS, "record"]) {
    element(id).addEventListener("input", () => {
      element("example").value = "";
      fillTargets();
      if (shown) setStatus(CHANGED);
    });
  }
  window.addEventListener("popstate", () => restore(history.state));
  element("change").addEventListener("change", () => { fillTargets(); update(); });
  for (const id of ["years", "rate", "prices", "to"]) element(id).addEventListener("change", update);
  element("share").addEventListener("click", copyLink);
  for (const button of document.querySelectorAll("[data-download]")) {
    button.addEventListener("click", () => download(button.dataset.download));
  }
  window.addEventListener("resize", debounce(draw, 150));
  await load();
}

/** Reads what the page needs from the service; without a valid key it asks for one. */
async function load() {
  showProblem(null);
  try {
    [model, columns] = [await callService("v1/model"), (await callService("v1/variables")).columns];
  } catch (error) {
    if (error.status === 401 || error.status === 403) element("key-field").hidden = false;
    showProblem(error);
    return;
  }
  element("simulated").hidden = model.trained_on !== "simulated people";
  const levels = columns.find((column) => column.name === "education_level").codes;
  fillSelect("education_level", [["", "unknown"], ...levels.map((code) => [code, code.replace("_", " ")])]);
  fillSelect("prices", model.currency === "SEK"
    ? [["nominal", "each year's prices"], [model.price_year, `prices of ${model.price_year}`]]
    : [[model.price_year, `${model.currency}, prices of ${model.price_year}`]]);
  if (model.currency === "SEK") {
    priceIndex = await (await fetch("explorer/price_index.json")).json();
    examples = parsePersons(await (await fetch("explorer/example_people.csv")).text(), columns);
    const names = [...examples.keys()].map((name) => [name, nameOf(name)]);
    fillSelect("example", [["", "Own record"], ...names]);
  }
  restore(history.state);
}

/** Fills the form from an entry of the tab's history, or from an address, which has no personal data. */
function restore(entry) {
  const link = new URLSearchParams(location.hash.slice(1));
  const known = examples.has(link.get("example")) ? link.get("example") : "";
  const form = entry ?? { ...Object.fromEntries(link), example: link.has("example") ? known : [...examples.keys()][0] ?? "" };
  takeForecastAway();
  showProblem(null);
  for (const id of [...FIELDS, "record"]) element(id).value = form[id] ?? "";
  element("example").value = form.example;
  if (!entry) showExample();
  openFields();
  for (const name of OPTIONS) {
    if (name === "to") fillTargets();
    if ([...element(name).options].some((option) => option.value === form[name])) element(name).value = form[name];
  }
  if (link.has("example") && !entry && !known) setStatus("The link has the options of an own record, but not the record. Enter it to see a forecast.");
  else if (form.record || element("record").value) showForecast({ isFirst: !entry && !known });
  else setStatus("Enter a record, then press “Show the forecast”.");
}

/** A form that was shown becomes an entry of the tab's history; the browser forgets it with the tab. */
function keep(form) {
  const isOther = history.state && JSON.stringify(history.state) !== JSON.stringify(form);
  history[isOther ? "pushState" : "replaceState"](form, "", `#${linkOptions()}`);
}

function linkOptions() {
  const link = new URLSearchParams();
  const example = element("example").value; // empty for an own record, which stays out of the address
  link.set("example", example);
  for (const name of OPTIONS) {
    const isOwnYear = name === "to" && element("change").value === "year" && !example;
    if (element(name).value && !isOwnYear) link.set(name, element(name).value);
  }
  return link;
}

async function copyLink() {
  history.replaceState(history.state, "", `#${linkOptions()}`);
  try {
    await navigator.clipboard.writeText(location.href);
    setStatus("The link is copied. It has the options only, no record.");
  } catch {
    setStatus("The link is in the address line. It has the options only, no record.");
  }
}

function fillSelect(id, options) {
  element(id).replaceChildren(...options.map(([value, text]) => new Option(text, value)));
}

function showExample() {
  const person = examples.get(element("example").value);
  if (!person) return;
  for (const name of FIELDS) element(name).value = steadyValue(person, name) ?? "";
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
    if (isOfRecord) field.value = steadyValue(person, name) ?? "";
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

async function readFile() {
  const file = element("file").files[0];
  if (!file) return;
  try {
    const bytes = await file.arrayBuffer();
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      text = new TextDecoder("windows-1252").decode(bytes);
    }
    filePersons = parsePersons(text, columns);
    fillSelect("file-person", [...filePersons.keys()].map((id) => [id, id]));
    element("file-person-field").hidden = filePersons.size < 2;
    showProblem(null);
    showFilePerson();
    if (shown) setStatus(CHANGED);
  } catch (error) {
    showProblem(error);
  }
}

function nameOf(id) {
  return examples.has(id) || id === OWN ? id[0].toUpperCase() + id.slice(1) : `Person ${id}`;
}

function readRecord() {
  const persons = parsePersons(element("record").value, columns);
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

const update = debounce(() => { if (shown) showForecast(); }, 50);

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

/** Asks for the forecast of the form; `isFirst`: the page has just opened, so it stays at its top. */
async function showForecast({ isFirst = false } = {}) {
  const number = ++latest;
  showProblem(null);
  try {
    if (!model) throw new Error("The service is not ready, or needs a key.");
    const cases = readCases();
    const form = Object.fromEntries(INPUTS.map((id) => [id, element(id).value]));
    setStatus("Computing the forecast.");
    const prices = element("prices").value === "nominal" ? "nominal" : Number(element("prices").value);
    const horizons = d3.range(1, Number(element("years").value) + 1);
    const options = { prices, horizons, coverage: COVERAGE, quantiles: [0.5] };
    const answers = await Promise.all(cases.map((each) =>
      callService("v1/forecasts", { ...options, scenario: each.scenario, persons: [each.person] })));
    if (number !== latest) return;
    cases.forEach((each, i) => {
      each.horizons = answers[i].forecasts[0].horizons;
      each.record = inRealMoney(each.person);
    });
    const unit = `${answers[0].provenance.currency} of ${answers[0].provenance.price_year}`;
    const year = cases[0].horizons.length ? sentenceYear(cases[0].horizons) : null;
    if (!year) throw new Error("There is no year left to forecast: the person is 64 or older.");
    const sentences = [describeYear(year, unit)];
    if (cases.length > 1) {
      const changed = cases[1].horizons.find((row) => row.h === year.h);
      const isGap = element("change").value === "year";
      sentences.push(describeChange(year, changed, cases[1].words), ...(isGap ? [explainRise(year, changed)].filter(Boolean) : []));
    }
    const who = describePerson(nameOf(cases[0].person.person_id), cases[0].person, prices);
    shown = { cases, who, unit, sentences, provenance: answers[0].provenance, warnings: cautionsOf(cases, answers) };
    draw();
    setStatus("The forecast is shown.");
    const { top } = element("result").getBoundingClientRect();
    if (!isFirst && (top < 0 || top > window.innerHeight / 2)) element("result").scrollIntoView();
    if (!isFirst) keep(form);
    await showLifetimes(number, cases, prices, unit);
  } catch (error) {
    if (number === latest) showProblem(error);
  }
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

async function showLifetimes(number, cases, prices, unit) {
  const options = { prices, rate: Number(element("rate").value), tax: unit.startsWith("SEK") ? "se-2022" : "none" };
  const answers = await Promise.all(cases.map((each) =>
    callService("v1/lifetimes", { ...options, scenario: each.scenario, persons: [each.person] })));
  if (number !== latest) return;
  cases.forEach((each, i) => { [each.lifetime] = answers[i].lifetimes; });
  drawLifetimes();
}

function draw() {
  if (!shown) return;
  const { cases, who, unit, sentences, warnings, provenance } = shown;
  element("answer").hidden = false;
  element("who").textContent = `${who}.`;
  element("sentences").replaceChildren(...sentences.map((text) => node("p", text)));
  element("warnings").replaceChildren(...warnings.map((text) => node("li", text)));
  element("untested").hidden = !cases.some((each) => hasUntested(each.horizons));
  const top = d3.max(cases, (each) => topAmount(each.record, each.horizons));
  const figures = cases.map(() => document.createElement("figure"));
  element("figures").replaceChildren(...figures);
  cases.forEach((each, i) => {
    const width = Math.max(280, Math.floor(figures[i].clientWidth));
    const text = `${each.label}: record, published sets, median and zero by year. ${describeYear(sentenceYear(each.horizons), unit)}`;
    const zero = `${each.label}: chance of no earnings by year, ${share(each.horizons[0].p_zero)} in ${each.horizons[0].year} and ` +
      `${share(each.horizons.at(-1).p_zero)} in ${each.horizons.at(-1).year}.`;
    each.svgs = [
      drawFan(each.record, each.horizons, { width, top, unit, description: text }),
      drawZero(each.record, each.horizons, { width, description: zero }),
    ];
    figures[i].append(node("figcaption", cases.length > 1 ? each.label : ""), ...each.svgs);
  });
  element("tables").replaceChildren(...cases.map((each) => tableOf(each, unit)));
  const facts = Object.entries(provenance).filter(([, value]) => typeof value !== "object");
  element("provenance").replaceChildren(...facts.flatMap(([name, value]) => [node("dt", name.replaceAll("_", " ")), node("dd", value)]));
  drawLifetimes();
}

/** The person with earnings in the prices of the forecast, as the service reads them. */
function inRealMoney(person) {
  if (element("prices").value !== "nominal") return person;
  const history = person.history.map((year) => {
    const factor = priceIndex[model.price_year] / priceIndex[year.year];
    return year.earnings === undefined ? year : { ...year, earnings: year.earnings * factor };
  });
  return { ...person, history };
}

function drawLifetimes() {
  if (!shown || !shown.cases.every((each) => each.lifetime)) {
    element("life-sentences").replaceChildren();
    element("life-figures").replaceChildren();
    return;
  }
  const { cases, unit } = shown;
  element("life-sentences").replaceChildren(...cases.map((each) => node("p", describeLifetime(each.lifetime, unit, each.label))));
  const all = cases.flatMap((each) => lifetimeParts(each.lifetime));
  const domain = [0, d3.max(all.flatMap((part) => part.histogram.edges))];
  const figures = cases.map(() => document.createElement("figure"));
  element("life-figures").replaceChildren(...figures);
  cases.forEach((each, i) => {
    const width = Math.max(280, Math.floor(figures[i].clientWidth));
    const charts = lifetimeParts(each.lifetime).map((part) => {
      const top = d3.max(all.filter((other) => other.name === part.name), topDensity); // one scale for both cases
      const description = `${each.label}: distribution of the simulated present value ${part.name}; the line is the mean, ${about(part.mean)} ${unit}.`;
      return drawLifetime(part, { width, domain, top, unit, description });
    });
    figures[i].append(node("figcaption", cases.length > 1 ? each.label : ""), ...charts);
  });
}

function tableOf(each, unit) {
  const table = document.createElement("table");
  const head = ["Year", "Median", ...COVERAGE.map((c) => `${100 * c} % set`), "No earnings"];
  const rows = each.horizons.map((row) => [row.year, about(row.quantiles["0.5"]),
    ...COVERAGE.map((c) => setText(row.intervals.find((x) => x.coverage === c))), share(row.p_zero)]);
  table.append(node("caption", `${each.label}, ${unit} a year`), document.createElement("thead"), document.createElement("tbody"));
  table.tHead.append(rowOf(head, "th", "col"));
  table.tBodies[0].append(...rows.map((row) => rowOf(row, "td")));
  const scroll = node("div", "", "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", `${each.label}: forecast by year`);
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

async function download(kind) {
  const { cases, who, sentences, unit, provenance } = shown;
  if (kind === "csv") {
    saveFile(csvOf(cases), "text/csv", "forecast.csv");
    return;
  }
  const title = cases.length > 1 ? [`Left: as it is. Right: ${cases[1].label.toLowerCase()}.`] : [];
  const untested = cases.some((each) => hasUntested(each.horizons)) ? "Dashed: the coverage of the set was not tested. " : "";
  const legend = `Shades: sets of 50, 80 and 90 %. Line: median. Circle: the set includes a year without earnings. ${untested}Amounts in ${unit}, bundle ${provenance.bundle.slice(0, 12)}.`;
  const simulated = element("simulated").hidden ? [] : [SIMULATED];
  const svg = joinFigures(cases.map((each) => each.svgs), [`${who}.`, ...sentences, ...title, legend, ...simulated]);
  if (kind === "svg") saveFile(svg, "image/svg+xml", "forecast.svg");
  else saveFile(await pngOf(svg), "image/png", "forecast.png");
}

function node(tag, text, name) {
  const made = document.createElement(tag);
  made.textContent = String(text).replaceAll(" %", "\u00a0%");
  if (name) made.className = name;
  return made;
}

function setStatus(text) {
  element("status").textContent = text;
}

/** Says what is wrong in place of a forecast, where it is seen and read aloud; null removes it. */
function showProblem(error) {
  const place = element("problem");
  place.replaceChildren();
  if (!error) return;
  takeForecastAway();
  setStatus("");
  const lines = error instanceof CallError ? error.lines : [];
  place.append(node("p", error.message), ...lines.map((line) => node("p", line)));
  place.scrollIntoView({ block: "center" });
  place.focus({ preventScroll: true });
}

function takeForecastAway() {
  latest += 1; // an answer under way comes too late
  shown = null;
  element("answer").hidden = true;
}

function debounce(action, milliseconds) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(action, milliseconds); };
}

start();
