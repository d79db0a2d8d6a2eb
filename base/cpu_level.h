// What this CPU can run: the levels of x86-64, as the psABI names them (x86-64-v2, -v3, -v4).
#pragma once

// 1 to 4; 0: another architecture than x86-64, which has no levels.
int cpu_level(void);
// Why this build cannot run here, as one sentence; NULL: it can. Runs on every x86-64, unlike the rest of the build.
const char *cpu_refusal(void);
