// The evaluator's figures for people and for machines.
#include "base/output.h"
#include "data/formats/cocoeval.h"

void cocoeval_print(FILE *f, const EvalSummary *s) {
  static const char *const area_name[EVAL_AREAS] = {"all", "small", "medium", "large"};
  for (int i = 0; i < EVAL_STATS; i++) {
    const EvalStat *e = &eval_stats[i];
    char iou[16] = "0.50:0.95";
    if (e->iou) snprintf(iou, sizeof iou, "0.%02d", e->iou);
    fprintf(f, " %-18s %s @[ IoU=%-9s | area=%6s | maxDets=%3d ] = %0.3f\n",
            e->recall ? "Average Recall" : "Average Precision", e->recall ? "(AR)" : "(AP)", iou, area_name[e->area],
            e->max_dets, s->stats[i]);
  }
}

static void print_cell(FILE *f, double value) {
  if (value < 0)
    fprintf(f, "%8s", "-");
  else
    fprintf(f, "%8.3f", value);
}

void cocoeval_print_categories(FILE *f, const EvalSummary *s) {
  fprintf(f, "%10s  %-24s%8s%8s%8s\n", "id", "category", "AP", "AP50", "AR_100");
  for (int k = 0; k < s->num_categories; k++) {
    const EvalCategory *c = &s->categories[k];
    text_print(f, "%10lld  %-24s", (long long)c->id, c->name ? c->name : "");
    print_cell(f, c->ap);
    print_cell(f, c->ap50);
    print_cell(f, c->ar_100);
    fputc('\n', f);
  }
}

void cocoeval_print_json(FILE *f, const EvalSummary *s) {
  fputs("{\n", f);
  for (int i = 0; i < EVAL_STATS; i++) fprintf(f, "  \"%s\": %.17g,\n", eval_stats[i].key, s->stats[i]);
  fputs("  \"per_category\": {", f);
  for (int k = 0; k < s->num_categories; k++) {
    const EvalCategory *c = &s->categories[k];
    fprintf(f, "%s\n    \"%lld\": {\"AP\": %.17g, \"AP50\": %.17g, \"AR_100\": %.17g}", k ? "," : "", (long long)c->id,
            c->ap, c->ap50, c->ar_100);
  }
  fputs(s->num_categories ? "\n  }\n}\n" : "}\n}\n", f);
}
