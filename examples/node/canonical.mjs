// Compares canonical forms with those of npm's `canonicalize`.
//
//     node canonical.mjs FOLDER_OF_MODULES FILE
//
// Each line of the file is a JSON text, a tab, and its canonical form. Prints one line of JSON: how many were compared, and
// the first that differ.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [modules, file] = process.argv.slice(2);
const path = `${modules}/canonicalize/lib/canonicalize.js`;
const { default: canonicalize } = await import(pathToFileURL(path));
let compared = 0;
const different = [];
for (const line of readFileSync(file, "utf8").trimEnd().split("\n")) {
    const [text, wanted] = line.split("\t");
    const seen = canonicalize(JSON.parse(text));
    compared += 1;
    if (seen !== wanted && different.length < 5) different.push({ text, seen, wanted });
}
console.log(JSON.stringify({ compared, different }));
