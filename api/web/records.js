// Records: CSV text becomes persons as POST /v1/forecasts takes them, and one thing of a person is changed.
/* global d3 */

export const OWN = "own record"; // the person_id of a record that names none

const ENTRANTS = { year: { unit: "year" }, age: { kind: "number" }, persons: { kind: "number" }, sex: { kind: "category" } };
const YEAR = /^\d{4}(\.0*)?$/; // a column of years with gaps is often written as 1997.0

/** The text of a file in UTF-8, in UTF-16 as Excel's Unicode text, or in Latin-1 as Windows writes it. */
export async function readText(file) {
  const bytes = await file.arrayBuffer();
  const isWide = new Uint8Array(bytes).slice(0, 2).join() === "255,254"; // the mark at its beginning
  try {
    return new TextDecoder(isWide ? "utf-16le" : "utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/** The separator of a text in lines, and how many lines stand before its header: blank ones, and Excel's `sep=;`. As `saga.data.csv_text` finds them. */
function findSeparator(lines) {
  const first = Math.max(0, lines.findIndex((line) => line.trim()));
  const named = /^"?sep=([\t -~])\1*"?$/i.exec(lines[first]);
  if (named) return [named[1], first + 1];
  const header = lines[first].replace(/"[^"]*"/g, "");
  return [d3.greatest([",", ";", "\t", "|"], (mark) => header.split(mark).length), first];
}

/** The names and the cells of a CSV text, and the number of the line after the header; a blank line has no cells. Throws Error with what is wrong. */
function readCells(text, required) {
  const lines = text.replace(/^\ufeff/, "").split(/\r\n?|\n/);
  if (text.startsWith("PK\u0003\u0004")) throw new Error("This is no text, but perhaps a workbook of Excel. Save its sheet as CSV UTF-8.");
  // The parser takes a text that is cut off for whole.
  if (text.split('"').length % 2 === 0) throw new Error("A quotation mark is not closed. Close it, or double it if it is part of a text.");
  const [delimiter, before] = findSeparator(lines);
  // Not `parse`, which makes code out of the column names: the content policy refuses that.
  const [head = [], ...rows] = d3.dsvFormat(delimiter).parseRows(lines.slice(before).join("\n"), (row) => row.map((cell) => cell.trim()));
  const names = head.map((name) => name.toLowerCase());
  const missing = required.filter((name) => !names.includes(name));
  if (missing.length) throw new Error(`The first line must name the columns. It lacks ${missing.join(", ")}: rename yours, or add them.`);
  const twice = names.find((name, j) => name && names.indexOf(name) < j);
  if (twice) throw new Error(`The first line names ${twice} twice. Keep one of the columns.`);
  const needed = names.findLastIndex((name) => name !== "") + 1;
  return [names, rows.map((cells, i) => {
    const line = before + i + 2;
    if (cells.every((cell) => cell === "")) return [];
    if (cells.length < needed) throw new Error(`Line ${line} has fewer cells than the first line. Write a separator for each unknown cell.`);
    if (cells.length > names.length) throw new Error(`Line ${line} has more cells than the first line. With decimal commas, separate the cells by semicolons.`);
    const nameless = cells.findIndex((cell, j) => j && cell && !names[j]); // a first column without a name numbers the rows
    if (nameless > 0) throw new Error(`Line ${line} has a value in column ${nameless + 1}, which the first line does not name. Name the column, or remove it.`);
    return cells;
  }), before + 2];
}

/** Who joins a panel, a row of year, age, persons and perhaps sex each. Throws Error with what is wrong. */
export function parseEntrants(text) {
  const [names, rows, first] = readCells(text, ["year", "age", "persons"]);
  const unknown = names.find((name) => name && !ENTRANTS[name]);
  if (unknown) throw new Error(`The column ${unknown} of those who join is not known. Remove it or correct its name.`);
  const mark = decimalMark(rows.flatMap((cells) => cells.filter((_, j) => ENTRANTS[names[j]]?.kind === "number")));
  const entrants = rows.flatMap((cells, i) => (!cells.length ? [] : [Object.fromEntries(names.flatMap((name, j) => {
    if (!name || (name === "sex" && !cells[j])) return [];
    if (!cells[j]) throw new Error(`Line ${first + i}: ${name} is missing.`);
    return [[name, readCell(cells[j], { name, ...ENTRANTS[name] }, mark, first + i)]];
  }))]));
  if (!entrants.length) throw new Error("The file of those who join has no row. Add at least one line.");
  return entrants;
}

/** Persons of a CSV text, by id; a text without person_id is one person. Throws Error with what is wrong, such as a required column that it lacks. */
export function parsePersons(text, columns, required = ["year", "earnings"]) {
  const [names, rows, first] = readCells(text, required);
  const kinds = new Map(columns.map((column) => [column.name, column]));
  const unknown = names.find((name) => name && !kinds.has(name));
  if (unknown) throw new Error(`The column ${unknown} is not known. Remove it or correct its name.`);
  const isNumber = names.map((name) => ["money", "number"].includes(kinds.get(name)?.kind));
  const mark = decimalMark(rows.flatMap((cells) => cells.filter((_, j) => isNumber[j])));
  const persons = new Map();
  rows.forEach((cells, i) => {
    if (!cells.length) return;
    const row = Object.fromEntries(names.map((name, j) => [name, cells[j] ?? ""]));
    if (row.person_id === "") throw new Error(`Line ${first + i}: person_id is missing.`);
    const id = row.person_id ?? OWN;
    if (!persons.has(id)) persons.set(id, { person_id: id, history: [] });
    const person = persons.get(id);
    const year = {};
    for (const [name, cell] of Object.entries(row)) {
      if (name === "person_id" || name === "" || cell === "") continue;
      const column = kinds.get(name);
      const value = readCell(cell, column, mark, first + i);
      if (!column.static) year[name] = value;
      else if ((person[name] ?? value) === value) person[name] = value;
      else throw new Error(`Line ${first + i}: ${name} is another than in the lines before. A person has one.`);
    }
    if (year.year === undefined) throw new Error(`Line ${first + i}: the year is missing.`);
    person.history.push(year);
  });
  if (!persons.size) throw new Error("The record has no year. Add at least one line.");
  for (const { history } of persons.values()) history.sort((one, other) => one.year - other.year); // the last line is the last year
  return persons;
}

/** A year in four digits as a number. Throws Error for what names no year. */
export function readYear(text, place) {
  if (YEAR.test(text)) return Number(text);
  throw new Error(`${place} needs four digits, such as 1985.`);
}

function readCell(cell, column, mark, line) {
  if (column.unit === "year") return readYear(cell, `Line ${line}: ${column.name}`);
  if (!["money", "number"].includes(column.kind)) return cell;
  const readings = [".", ","].map((decimal) => readNumber(cell, decimal));
  const values = [...new Set(readings.filter((value) => value !== undefined))];
  const value = values.length > 1 ? readings[[".", ","].indexOf(mark)] : values[0];
  if (value !== undefined) return value;
  const why = values.length > 1 ? "can be read in two ways; write it without thousands separators" : "is not a number";
  throw new Error(`Line ${line}: ${column.name} ${why}.`);
}

/** The number of a text with this decimal mark, thousands in groups of three or without a separator; else undefined. */
function readNumber(text, decimal) {
  const separator = decimal === "." ? "," : "\\.";
  const form = `^[-+]?(\\d+|[1-9]\\d{0,2}(${separator}\\d{3})+|[1-9]\\d{0,2}([\\s'\u2019]\\d{3})+)?(\\${decimal}\\d*)?(e[-+]?\\d+)?$`;
  if (!/\d/.test(text) || !new RegExp(form, "i").test(text)) return undefined;
  const value = Number(text.replace(new RegExp(`[\\s'\u2019]|${separator}`, "g"), "").replace(decimal, "."));
  return Number.isFinite(value) ? value : undefined;
}

/** The decimal mark of which the cells leave no doubt; undefined if none tells, or if they disagree: a program that writes 0.5 does not write 285.000 for 285. */
function decimalMark(cells) {
  const telling = [".", ","].map((mark) => [mark, cells.filter((cell) => readNumber(cell, mark) !== undefined && readNumber(cell, mark === "." ? "," : ".") === undefined)]);
  const told = telling.filter(([, found]) => found.length);
  if (told.length !== 1) return undefined;
  const [mark, found] = told[0];
  const isDoubtful = cells.some((cell) => new RegExp(`^[-+]?[1-9]\\d{0,2}\\${mark}\\d\\d0$`).test(cell));
  return isDoubtful && !found.some((cell) => new RegExp(`\\${mark}\\d{3}$`).test(cell)) ? undefined : mark;
}

/** Whether a person's record has a value of a column, in some year or once. */
export function hasColumn(person, name) {
  return person[name] !== undefined || person.history.some((year) => year[name] !== undefined);
}

/** The lines of a person's record as CSV text, without the columns that the form shows elsewhere. */
export function formatRecord(person, hidden) {
  const names = new Set(person.history.flatMap((year) => Object.keys(year)));
  const shown = [...names].filter((name) => !hidden.includes(name) && person.history.some((year) => year[name] !== undefined));
  const fixed = Object.keys(person).filter((name) => !["person_id", "history", ...hidden].includes(name));
  const id = hidden.includes("person_id") || person.person_id === OWN ? [] : ["person_id"];
  const columns = [...id, "year", "earnings", ...shown.filter((name) => !["year", "earnings"].includes(name)), ...fixed];
  return d3.csvFormat(person.history.map((year) => ({ ...person, ...year })), columns);
}

/** The last known value of a column in a person's record. */
export function lastValue(person, name) {
  return person[name] ?? person.history.findLast((year) => year[name] !== undefined)?.[name];
}

/** A copy of a person with another education in all years, or with no earnings in one year. */
export function changePerson(person, change, to) {
  const history = person.history.map((year) => {
    if (change === "education_level") return { ...year, education_level: to };
    return change === "year" && year.year === Number(to) ? { ...year, earnings: 0 } : year;
  });
  return { ...person, history };
}

/** Whether a changed text is still the same record: a line of it is left, or one key changed it. */
export function isSameRecord(before, after) {
  const lines = new Set(after.split(/\r?\n/).slice(1).filter((line) => line.trim()));
  if (before.split(/\r?\n/).slice(1).some((line) => lines.has(line))) return true;
  const longer = Math.max(before.length, after.length);
  let [start, end] = [0, 0];
  while (start < longer && before[start] === after[start]) start += 1;
  while (end < longer - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  return longer - start - end <= 1 && lines.size > 0;
}
