// Judges messages by the schemas, with npm's `ajv` and `ajv-formats`.
//
//     node schemas.mjs FOLDER_OF_MODULES FOLDER_OF_SCHEMAS FILE
//
// Each line of the file is an array: the name of a schema, whether the message is said to be valid, the message. Prints one line
// of JSON: how many were judged, and the first that are judged otherwise.

import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";

const [modules, folder, file] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { default: Ajv } = require("ajv/dist/2020");
const { default: addFormats } = require("ajv-formats");
const validators = new Map();
for (const name of readdirSync(folder)) {
    // A validator of its own for each: they may share names.
    const ajv = new Ajv({ strictTypes: false, strictRequired: false, validateFormats: true });
    addFormats(ajv);
    const schema = JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
    validators.set(name.replace(/\.json$/, ""), ajv.compile(schema));
}
let judged = 0;
const different = [];
for (const line of readFileSync(file, "utf8").trimEnd().split("\n")) {
    const [name, wanted, message] = JSON.parse(line);
    judged += 1;
    if (validators.get(name)(message) !== wanted && different.length < 5) different.push([name, wanted, message]);
}
console.log(JSON.stringify({ judged, different }));
