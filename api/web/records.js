// Records: CSV text becomes persons as POST /v1/forecasts takes them, and one thing of a person is changed.
/* global d3 */

/** Persons of a CSV text, by id; a text without person_id is one person. Throws Error with what is wrong. */
export function parsePersons(text, columns) {
  const lines = text.replace(/^\ufeff/, "").trimEnd().split(/\r?\n/);
  const delimiter = [";", "\t"].find((mark) => lines[0].includes(mark)) ?? ",";
  // Not `parse`, which makes code out of the column names: the content policy refuses that.
  const [head = [], ...rows] = d3.dsvFormat(delimiter).parseRows(lines.join("\n"), (row) => row.map((cell) => cell.trim()));
  const names = head.map((name) => name.toLowerCase());
  for (const name of ["year", "earnings"]) {
    if (!names.includes(name)) {
      throw new Error(`The first line must name the columns, and one of them is ${name}.`);
    }
  }
  const kinds = new Map(columns.map((column) => [column.name, column]));
  const persons = new Map();
  rows.forEach((cells, i) => {
    if (cells.every((cell) => cell === "")) return;
    if (cells.length > names.length) {
      throw new Error(`Line ${i + 2} has more cells than the first line. With decimal commas, separate the cells by semicolons.`);
    }
    const row = Object.fromEntries(names.map((name, j) => [name, cells[j] ?? ""]));
    const id = row.person_id || "own record";
    if (!persons.has(id)) persons.set(id, { person_id: id, history: [] });
    const person = persons.get(id);
    const year = {};
    for (const [name, cell] of Object.entries(row)) {
      if (name === "person_id" || name === "" || cell === "") continue;
      const column = kinds.get(name);
      if (!column) throw new Error(`The column ${name} is not known. Remove it or correct its name.`);
      const value = readCell(cell, column, delimiter, i + 2);
      if (column.static) person[name] = value;
      else year[name] = value;
    }
    if (year.year === undefined) throw new Error(`Line ${i + 2}: the year is missing.`);
    person.history.push(year);
  });
  if (!persons.size) throw new Error("The record has no year. Add at least one line.");
  return persons;
}

function readCell(cell, column, delimiter, line) {
  if (!["money", "number", "year"].includes(column.kind)) return cell;
  const text = delimiter === "," ? cell : cell.replace(",", ".");
  const value = Number(text.replace(/[\s\u00a0]/g, ""));
  if (Number.isFinite(value)) return value;
  throw new Error(`Line ${line}: ${column.name} is not a number.`);
}

/** The lines of a person's record as CSV text, without the columns that the form shows elsewhere. */
export function formatRecord(person, hidden) {
  const names = new Set(person.history.flatMap((year) => Object.keys(year)));
  const shown = [...names].filter((name) => !hidden.includes(name) && person.history.some((year) => year[name] !== undefined));
  const fixed = Object.keys(person).filter((name) => !["person_id", "history", ...hidden].includes(name));
  const columns = ["year", "earnings", ...shown.filter((name) => !["year", "earnings"].includes(name)), ...fixed];
  return d3.csvFormat(person.history.map((year) => ({ ...person, ...year })), columns);
}

/** Columns in which all years of a person agree, such as education_level. */
export function steadyValue(person, name) {
  const values = new Set(person.history.map((year) => year[name]).filter((value) => value !== undefined));
  return person[name] ?? (values.size === 1 ? [...values][0] : undefined);
}

/** A copy of a person with another education in all years, or with no earnings in one year. */
export function changePerson(person, change, to) {
  const history = person.history.map((year) => {
    if (change === "education_level") return { ...year, education_level: to };
    return change === "year" && year.year === Number(to) ? { ...year, earnings: 0 } : year;
  });
  return { ...person, history };
}
