// A rank of RankProcesses that is played by the test, frame by frame: it may say what no rank says.
#pragma once
#include "comm/hello.h"
#include "test/harness/rank_processes.h"

Wire raw_connect(const RankProcesses *r);
bool raw_await(Wire *w, Frame *frame); // the next frame; false: the connection is closed, or it is none
int raw_next(Wire *w);                 // its type; 0: none
Hello raw_hello(const RankProcesses *r, int rank, HelloFor connection);
// Connects, and sends the hello and the proof. `key`: the run's, or the session of a control connection.
Wire raw_join(const RankProcesses *r, const Hello *h, const uint8_t *key, uint8_t session[SHA256_BYTES]);
// Joins with both connections, and waits until all have.
void raw_meet(const RankProcesses *r, int rank, Wire *control, Wire *data);
