// What a frame of another rank means to a watch: nothing that it says is taken as it is.
#pragma once
#include "comm/hello.h"

// Types, from 8 on: BEAT (number: the step), STOP, FAILED (to rank 0; code: the exit status; number: the step, or -1;
// text: why), END (from rank 0; code: the exit status), BYE (this end disconnects). In the order of the news.
enum { FRAME_BEAT = FRAMES_OF_WATCH, FRAME_STOP, FRAME_FAILED, FRAME_END, FRAME_BYE };

typedef enum News { NEWS_STEP, NEWS_STOP, NEWS_FAILED, NEWS_END, NEWS_BYE, NEWS_NONSENSE } News;

// Makes the frame's code a status with which this program ends, and its text one clean line, not empty.
News watch_news(Frame *f, bool is_rank_0);
