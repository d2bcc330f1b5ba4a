// Plain sentences from the published numbers; those of a person's year are the same as saga.pages.person writes.
/* global d3 */

export const SCENARIOS = { "recession-1990s": "a recession as in the 1990s", "high-growth": "high growth" };

const PREFERRED = [0.8, 0.9, 0.5, 0.95];
const SENTENCE_HORIZON = 5;
const TESTED = ["finite-sample", "assumption"]; // guarantees of sets whose coverage was tested

/** An amount with three significant digits: 412345 -> "412,000". */
export function about(amount) {
  return d3.format(",.0f")(Number(amount.toPrecision(3)));
}

/** A statistic of a group: a share in per cent, a ratio, or an amount, from a million on in millions. */
export function figure(name, value) {
  if (/share$/.test(name)) return share(value);
  if (/(ratio|gini)$/.test(name)) return d3.format(".2f")(value);
  const millions = Number((value / 1e6).toPrecision(3));
  return Math.abs(value) < 1e6 ? about(value) : `${d3.format(",")(millions)} million`;
}

/** A statistic with its 90 % range; what is hidden says so. */
export function figureText({ statistic, value, lower_90: lower, upper_90: upper, suppressed }) {
  if (suppressed) return "hidden";
  if (value === null) return "none";
  const range = lower === null || statistic === "persons" ? "" : ` (${figure(statistic, lower)} to ${figure(statistic, upper)})`;
  return `${figure(statistic, value)}${range}`;
}

/** The sum of a year, beside that of the first year. */
export function describeTotal(first, last, persons, unit, hasJoined) {
  const who = hasJoined ? "persons, with those who have joined," : "of these persons";
  return `In ${last.year} about ${about(persons)} ${who} are not yet older than 64. Together they earn ` +
    `${figure("total", last.value)} ${unit}; in 9 of 10 simulated futures it is ${figure("total", last.lower_90)} to ` +
    `${figure("total", last.upper_90)}. In ${first.year} it is ${figureText(first)}.`;
}

/** Whether the gap between two groups closes, from the ratio of the first year and the last, and the event that it is below 1. */
export function describeGap(first, last, [one, other], { chance, mc_error: error } = {}) {
  const start = `The mean of ${one} is ${figureText(first)} times that of ${other} in ${first.year}, and ${figureText(last)} times in ${last.year}.`;
  if (chance === null || chance === undefined) return start;
  const closed = first.value > 1 ? chance : 1 - chance;
  const points = Math.round(200 * error); // two standard errors
  const few = points ? ` (plus or minus ${points} points, because the futures are few)` : "";
  return `${start} The chance that the gap has closed or reversed by ${last.year} is ${share(closed)}${few}.`;
}

/** What a scenario does to each amount: its name, its value before and after, and the range of the difference, if it is known. */
export function describeScenario(words, pairs) {
  const parts = pairs.map(([label, before, after, range = []], i) => {
    const change = after / before - 1;
    const move = Math.abs(change) < 0.0005 ? "does not move" : `is ${d3.format(".1f")(100 * Math.abs(change))} % ${change > 0 ? "higher" : "lower"}`;
    const ends = range.map((end) => d3.format("+.0f")((100 * end) / before).replace(/^.0$/, "0"));
    return `${label} ${move}${ends.length ? ` (${i ? "" : "in 9 of 10 futures "}${ends.join(" to ")} %)` : ""}`;
  });
  return `With ${words}, ${parts.slice(0, -1).join(", ")}, and ${parts.at(-1)}.`;
}

/** A probability in per cent, never 0 or 100 % by rounding. */
export function share(probability) {
  if (probability > 0 && probability < 0.01) return "below 1 %";
  if (probability > 0.99 && probability < 1) return "above 99 %";
  return `${d3.format(".0f")(100 * probability)} %`;
}

/** Whether the coverage of a set was tested. */
export function isTested(interval) {
  return TESTED.includes(interval?.guarantee);
}

/** The text of a published set, with a note if its coverage was not tested; `lower` of one that begins above 0 is null. */
export function setText(interval, show = about) {
  if (!interval || interval.upper === null) return "none";
  return `${rangeText(interval, show)}${isTested(interval) ? "" : " (coverage not tested)"}`;
}

function rangeText(interval, show) {
  if (interval.upper === 0) return "no earnings alone";
  const zero = interval.includes_zero && interval.lower > 0 ? "0 or " : "";
  const start = interval.lower === null ? "above 0" : show(interval.lower);
  return `${zero}${start} to ${show(interval.upper)}`;
}

/** The year that sentences are about: five years ahead, or the last one before. */
export function sentenceYear(horizons) {
  return horizons.filter((row) => row.h <= SENTENCE_HORIZON).at(-1) ?? horizons[0];
}

/** The set of a year that a sentence names: one whose coverage was tested goes first. */
export function namedSet(row) {
  const sets = PREFERRED.map((c) => row?.intervals.find((x) => x.coverage === c)).filter((x) => x && x.upper !== null);
  return sets.find(isTested) ?? sets[0];
}

/** Whose record a forecast is of. */
export function describePerson(name, person, prices) {
  const levels = [...new Set(person.history.map((year) => year.education_level).filter(Boolean))];
  const facts = [`born ${person.birth_year}`, person.sex, levels.at(-1)?.replace("_", " ")].filter(Boolean).join(", ");
  const used = person.history.filter(({ year }) => year - person.birth_year >= 16 && year - person.birth_year <= 64);
  const [first, last] = d3.extent(used, (row) => row.year);
  const known = used.filter((row) => row.earnings !== undefined).length;
  const gaps = known < used.length ? ` (earnings known in ${known})` : "";
  return `${name}: ${facts}; record of ${used.length} ${used.length === 1 ? "year" : "years"}${gaps}, ${first} to ${last}, in ` +
    (prices === "nominal" ? "the prices of each year" : `prices of ${prices}`);
}

/** What the forecast of a year says. */
export function describeYear(row, unit) {
  const median = row.quantiles["0.5"];
  const ahead = row.h === 1 ? "1 year" : `${row.h} years`;
  const start = `In ${row.year}, ${ahead} after the record ends`;
  const middle = median > 0
    ? `${start}, earnings are as likely to be above as below ${about(median)} ${unit}`
    : `${start}, having no earnings is more likely than having some`;
  const found = namedSet(row);
  const published = found
    ? `the ${100 * found.coverage} % set is ${setText(found)}`
    : "there is no set of stated coverage";
  return `${middle}; ${published}, and the chance of no earnings is ${share(row.p_zero)}.`;
}

/** What a change does to the forecast of a year. */
export function describeChange(before, after, label) {
  const [old, changed] = [before, after].map((row) => row.quantiles["0.5"]);
  const apart = Math.abs(Number(changed.toPrecision(3)) - Number(old.toPrecision(3))); // of the amounts as they are shown
  const move = Math.abs(changed - old) < 1 ? "does not move"
    : apart === 0 ? "hardly moves"
    : `is ${about(apart)} ${changed > old ? "higher" : "lower"} (${about(old)} becomes ${about(changed)})`;
  return `With ${label}, the median in ${after.year} ${move}, and the chance of no earnings goes from ` +
    `${share(before.p_zero)} to ${share(after.p_zero)}.`;
}

/** Why a year without work may raise the forecast; nothing if it does not. */
export function explainRise(before, after) {
  return after.quantiles["0.5"] > before.quantiles["0.5"]
    ? "This need not be an error. A likely reason: in the simulated register, a person who returns searches for a job first and works " +
      "only a part of the first year back, so the same earnings in that year mean more in a full year."
    : "";
}

/** What the present value of a lifetime says. */
export function describeLifetime(lifetime, unit, label) {
  const value = lifetime.present_value;
  const interval = value.intervals[0];
  const range = interval.upper === null ? "" :
    ` The ${100 * interval.coverage} % interval is ${setText(interval)}.`;
  const tax = lifetime.tax ? ` Of the mean, ${about(lifetime.tax.tax_mean)} is income tax by the rules of 2022, and ` +
    `${about(lifetime.tax.net_mean)} remains.` : "";
  const rate = lifetime.rate ? `, discounted at ${100 * lifetime.rate} % a year,` : "";
  return `${label}: earnings from the year after the record to age ${lifetime.to_age}${rate} come to ${about(value.mean)} ${unit} ` +
    `on average, before tax.${range}${tax}`;
}
