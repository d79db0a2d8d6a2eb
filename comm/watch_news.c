#include "comm/watch_news.h"
#include <string.h>

News watch_news(Frame *f, bool is_rank_0) {
  if (f->code != EXIT_USAGE) f->code = EXIT_RUN;
  text_clean(f->text);
  if (!*f->text) strcpy(f->text, "it failed, and does not say why");
  if (f->type < FRAME_BEAT || f->type > FRAME_BYE) return NEWS_NONSENSE;
  const News news = (News)(f->type - FRAME_BEAT);
  return news == (is_rank_0 ? NEWS_END : NEWS_FAILED) ? NEWS_NONSENSE : news;
}
