// One signal ends infer within seconds, whatever it computes or waits for: what is found by then stays.
#pragma once

// From here on there are results to keep; before, a signal ends the program at once. After the ranks have been started,
// because it starts a thread. `rank` 0 prints the line that says where it stopped.
void stop_limit_begin(int rank);
