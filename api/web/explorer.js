// The page: chooses the view, asks for what its form says, and shows the answer; keeps address, history and downloads.
/* global d3 */

import { CallError, callService, endOthers, LOADING, setKey } from "./calls.js";
import { joinFigures, pngOf, saveFile } from "./downloads.js";
import { choose, debounce, element, fillSelect, node, tableOf, valuesOf } from "./elements.js";
import * as person from "./person.js";
import * as population from "./population.js";

const VIEWS = { many: population, person };
const SHARED = ["prices", "rate"]; // options of both views
const CHANGED = "The form has changed. The forecast below is of the record that it names.";
const READY = "Press “Show the forecast”.";
const WAITING = "The service is starting. The page goes on as soon as it is ready.";
const LOOK_AGAIN = 500; // milliseconds
const FRAME = 50; // milliseconds in which the page is drawn
const SIMULATED = "Simulated people, not real: the bundle was trained on simulated people.";

let name = "many"; // of the view
let model = null; // the answer of GET /v1/model
let latest = 0; // number of the last request
let computing = null; // number of the request that is not answered yet
let notice = ""; // what the status says of the form or a file rather than of the answer, since the last request
const shown = {}; // what each view shows

async function start() {
  element("form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  element("key").addEventListener("change", async () => { setKey(element("key").value); await load(); });
  const update = debounce(() => { if (shown[name] || computing === latest || element("problem").hasChildNodes()) ask(); }, 50);
  const warn = () => { showProblem(null); notify(shown[name] ? CHANGED : READY); };
  for (const view of Object.values(VIEWS)) view.listen({ update, warn, ask, read });
  for (const id of SHARED) element(id).addEventListener("change", update);
  for (const link of document.querySelectorAll("[data-link]")) {
    link.addEventListener("click", (event) => { event.preventDefault(); changeView(link.dataset.link); });
  }
  window.addEventListener("popstate", () => restore(history.state));
  element("share").addEventListener("click", copyLink);
  for (const button of document.querySelectorAll("[data-download]")) {
    button.addEventListener("click", () => download(button.dataset.download));
  }
  window.addEventListener("resize", debounce(draw, 150));
  // Paper says what made its numbers.
  matchMedia("print").addEventListener("change", ({ matches }) => { element("provenance").parentElement.open = matches; });
  await load();
}

/** Reads what the page needs from the service, as soon as it is ready; without a valid key it asks for one. */
async function load() {
  showProblem(null);
  let service;
  try {
    const [card, variables] = await Promise.all([callService("v1/model"), callService("v1/variables")]);
    const priceIndex = await (await fetch("explorer/price_index.json")).json(); // Swedish consumer prices by year
    service = { model: card, ...variables, priceIndex };
    for (const view of Object.values(VIEWS)) await view.load(service);
  } catch (error) {
    if (error.kind === LOADING) {
      setStatus(WAITING);
      setTimeout(load, LOOK_AGAIN);
      return;
    }
    if (error.status === 401 || error.status === 403) element("key-field").hidden = false;
    showProblem(error);
    return;
  }
  model = service.model;
  element("simulated").hidden = model.trained_on !== "simulated people";
  fillSelect("prices", model.currency === "SEK"
    ? [["nominal", "each year's prices"], [model.price_year, `prices of ${model.price_year}`]]
    : [[model.price_year, `${model.currency}, prices of ${model.price_year}`]]);
  restore(history.state);
}

/** Shows a view: its part of the form and page, and what it showed before. */
function showView(chosen) {
  name = chosen;
  for (const part of document.querySelectorAll("[data-view]")) part.hidden = part.dataset.view !== name;
  for (const link of document.querySelectorAll("[data-link]")) {
    link.setAttribute("aria-current", link.dataset.link === name ? "page" : "false");
  }
  document.title = `SAGA explorer: ${document.querySelector(`h1[data-view=${name}]`).textContent}`;
}

/** The other view; what it showed is shown again. */
function changeView(chosen) {
  if (chosen === name) return;
  history.pushState(shown[chosen]?.form ?? null, "", `#view=${chosen}`);
  if (!shown[chosen] || shown[chosen].pending) {
    restore(history.state);
    return;
  }
  latest += 1;
  endOthers();
  showProblem(null);
  showView(chosen);
  setStatus("The forecast is shown.");
  draw();
}

/** Fills the form from an entry of the tab's history, or from an address, which has no personal data. */
function restore(entry) {
  const link = new URLSearchParams(location.hash.slice(1));
  showView(VIEWS[entry?.view ?? link.get("view")] ? entry?.view ?? link.get("view") : "many");
  takeForecastAway();
  showProblem(null);
  for (const id of SHARED) choose(id, entry?.[id] ?? link.get(id) ?? undefined);
  const missing = VIEWS[name].restore(entry, link);
  const inputs = entry ? [] : [...VIEWS[name].INPUTS, ...SHARED];
  const others = inputs.filter((id) => link.has(id) && link.get(id) !== element(id).value);
  if (missing) setStatus(missing);
  else if (others.length) showProblem(new Error(`The link asks for what this page does not have: ${others.map((id) => `${id}=${link.get(id)}`).join(", ")}. Choose in the form.`));
  else ask({ isFirst: !entry });
}

/** A form becomes an entry of the tab's history, which the browser forgets with the tab; one that failed gives way to the next. */
function keep(form, address, failed = false) {
  const before = history.state;
  const isOther = before && !before.failed && JSON.stringify({ ...before, failed }) !== JSON.stringify({ ...form, failed });
  history[isOther ? "pushState" : "replaceState"]({ ...form, failed }, "", address);
}

function formOf() {
  return { view: name, ...valuesOf([...VIEWS[name].INPUTS, ...SHARED]) };
}

/** Reads the file that was chosen in `place` by `take`, and then goes on by `next`. */
async function read(place, take, next) {
  const [file] = element(place).files;
  if (!file) return;
  element(place).value = ""; // so that the same file may be chosen again, mended
  showProblem(null);
  notify(`Reading ${file.name}.`);
  await new Promise((done) => setTimeout(done, FRAME)); // the page cannot be drawn while it reads
  try {
    await take(file);
    next();
  } catch (error) {
    fail(error, { ...formOf(), isUnread: true });
  }
}

/** Says what is wrong; the forecast that was shown is the entry before. */
function fail(error, form) {
  showProblem(error);
  keep(form, linkOf(), true);
}

/** The address of the options, without what was entered. */
function linkOf() {
  return `#${new URLSearchParams({ view: name, ...VIEWS[name].linkOptions(), ...valuesOf(SHARED) })}`;
}

async function copyLink() {
  history.replaceState(history.state, "", linkOf());
  try {
    await navigator.clipboard.writeText(location.href);
    setStatus("The link is copied. It has the options only, no record.");
  } catch {
    setStatus("The link is in the address line. It has the options only, no record.");
  }
}

/** Asks for the forecast of the form; `isFirst`: the page has just opened, so it stays at its top, unless a link names options. */
async function ask({ isFirst = false } = {}) {
  const number = ++latest;
  const [view, form] = [VIEWS[name], formOf()];
  computing = number;
  notice = "";
  showProblem(null);
  try {
    if (!model) throw new Error("The service is not ready, or needs a key.");
    const prices = form.prices === "nominal" ? "nominal" : Number(form.prices);
    setStatus("Computing the forecast.");
    let answers = 0;
    for await (const answer of view.compute({ prices, rate: Number(form.rate) })) {
      if (number !== latest) return;
      shown[name] = { ...answer, form };
      draw();
      setStatus(notice || answer.pending || "The forecast is shown.");
      for (const button of document.querySelectorAll("[data-download]")) button.disabled = Boolean(answer.isPreliminary);
      answers += 1;
      if (answers > 1) continue;
      const { top } = element("result").getBoundingClientRect();
      const stays = isFirst && new URLSearchParams(location.hash.slice(1)).size < 2;
      if (!stays && (top < 0 || top > window.innerHeight / 2)) element("result").scrollIntoView();
      keep(form, isFirst ? location.href : linkOf());
    }
  } catch (error) {
    if (number === latest) fail(error, form);
  } finally {
    if (computing === number) computing = null;
  }
}

function draw() {
  const { who, sentences, warnings, untested, scenario, figures, lifeSentences = [], lifeFigures = [], tables, provenance } = shown[name] ?? {};
  element("answer").hidden = !who;
  if (!who) return;
  element("who").textContent = `${who}.`;
  element("sentences").replaceChildren(...sentences.map((text) => node("p", text)));
  element("warnings").replaceChildren(...warnings.map((text) => node("li", text)));
  element("untested").hidden = !untested;
  element("scenario-line").hidden = !scenario;
  element("scenario-name").textContent = scenario ?? "";
  drawFigures("figures", figures);
  element("life-sentences").replaceChildren(...lifeSentences.map((text) => node("p", text)));
  drawFigures("life-figures", lifeFigures);
  element("tables").replaceChildren(...tables.map(tableOf));
  element("own-error").textContent = provenance.vintages ? "part of it, as far as vintages show" : "not part of it";
  const facts = Object.entries(provenance).filter(([, value]) => typeof value !== "object");
  element("provenance").replaceChildren(...facts.flatMap(([fact, value]) => [node("dt", fact.replaceAll("_", " ")), node("dd", value)]));
}

/** Draws figures as wide as their places are. */
function drawFigures(id, figures) {
  const places = figures.map(() => document.createElement("figure"));
  element(id).replaceChildren(...places);
  figures.forEach((figure, i) => {
    figure.svgs = figure.draw(Math.max(280, Math.floor(places[i].clientWidth)));
    places[i].append(node("figcaption", figure.caption), ...figure.svgs);
  });
}

async function download(kind) {
  const { who, sentences, legend, figures, rows, provenance } = shown[name];
  if (kind === "csv") {
    saveFile(d3.csvFormat(rows), "text/csv", "forecast.csv");
    return;
  }
  const source = `${legend} Amounts in ${provenance.currency} of ${provenance.price_year}, bundle ${provenance.bundle.slice(0, 12)}.`;
  const svg = joinFigures(figures, [`${who}.`, ...sentences, source, ...(element("simulated").hidden ? [] : [SIMULATED])]);
  if (kind === "svg") saveFile(svg, "image/svg+xml", "forecast.svg");
  else saveFile(await pngOf(svg), "image/png", "forecast.png");
}

function setStatus(text) {
  element("status").textContent = text;
}

/** A status that stays while answers to earlier requests come. */
function notify(text) {
  notice = text;
  setStatus(text);
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
  endOthers();
  delete shown[name];
  element("answer").hidden = true;
}

start();
