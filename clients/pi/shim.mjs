// What a client starts in place of its agent: `outlast`, with the same arguments, streams, signals and exit code.
//
// OUTLAST_BIN names the binary; where OUTLAST_PID_FILE names a file, the id of its process is written there, so that
// a test can see that it is gone. A signal is never taken without being passed on: both are set up in one tick.
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { constants } from "node:os";

const child = spawn(process.env.OUTLAST_BIN, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`${process.env.OUTLAST_BIN} cannot be started: ${error.message}`);
  process.exit(127);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
if (process.env.OUTLAST_PID_FILE) writeFileSync(process.env.OUTLAST_PID_FILE, String(child.pid ?? ""));
