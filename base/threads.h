// How OpenMP's threads wait for each other.
#pragma once

// To be called first in main(). A step is hundreds of short parallel regions; by default a waiting thread spins for
// milliseconds, which on a machine that has anything else to do (our own decoder threads) takes the core from the very
// thread it waits for: measured on two busy cores, 8 images/s against 72. clang's runtime reads its settings before
// main(), so the program sets them and starts itself again, once. Nothing happens where the user has chosen, or where
// base/team.c runs the regions (gcc).
void threads_wait_briefly(char **argv);
// Lets OpenMP use no more threads than the system starts (ulimit -u, a container's pids): it would end the program
// without saying why.
void threads_limit(void);
