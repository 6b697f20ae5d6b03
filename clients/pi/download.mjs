// Brings the released clients that packages.json names into a folder, and prints where each is: `VERSION FOLDER`.
//
//     node clients/pi/download.mjs FOLDER
//
// What came is unpacked only when it is, byte for byte, what packages.json says. Nothing of it is installed or run, and
// the client file needs no other package. What is already there is not asked for again.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";

const [folder] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node clients/pi/download.mjs FOLDER");
  process.exit(2);
}
mkdirSync(folder, { recursive: true });
const packages = JSON.parse(readFileSync(new URL("packages.json", import.meta.url)));
const places = packages.map((wanted) => {
  // Named by what it must be: another pin is another folder.
  const place = join(folder, `pi-client-${wanted.version}-${digest(wanted.integrity)}`);
  if (!existsSync(place)) bring(wanted, place);
  return `${wanted.version} ${place}`;
});
// All or nothing, as it may be tried again.
console.log(places.join("\n"));

function digest(integrity) {
  return Buffer.from(integrity.replace("sha512-", ""), "base64").toString("hex").slice(0, 12);
}

function bring({ name, version, integrity }, place) {
  const work = mkdtempSync(join(folder, "download-"));
  try {
    const options = { cwd: work, stdio: ["ignore", "ignore", "inherit"] };
    execFileSync("npm", ["pack", "--silent", "--ignore-scripts", `${name}@${version}`], options);
    const file = join(work, readdirSync(work).find((found) => found.endsWith(".tgz")));
    const found = `sha512-${createHash("sha512").update(readFileSync(file)).digest("base64")}`;
    if (found !== integrity) throw new Error(`${name}@${version} is not what it was: ${found} in place of ${integrity}`);
    execFileSync("tar", ["-xzf", file, "-C", work]);
    renameSync(join(work, "package"), place);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
