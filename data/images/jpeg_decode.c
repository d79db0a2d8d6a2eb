#include "data/images/jpeg_decode.h"
#include <string.h>
#include "data/images/jpeg.h"
#include "data/images/jpeg_idct.h"
#include "data/images/jpeg_rgb.h"
#include "data/images/jpeg_tables.h"

#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_JPEG
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_MAX_DIMENSIONS 65536
// stb_image asks for memory in the frame header alone, after which take_memory replaces what it got. Volatile, so that
// compilers do not warn of what functions that nobody calls would write there.
static char none[16], *volatile replaced = none;
#define STBI_MALLOC(bytes) ((void)(bytes), (void *)replaced)
#define STBI_REALLOC_SIZED(p, old, bytes) ((void)(old), (void)(bytes), (p))
#define STBI_FREE(p) ((void)(p))
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

// stb_image gives no reason for some failures; its last reason would then be an earlier image's, or NULL.
static const char unexplained[] = "malformed";

enum { COMPONENTS = 4, TABLES = 4, STANDARD_TABLES = 2 };

// The segments are found here and passed to stb_image one by one, because stb_image's own loop reads zeros past the end
// of a file and accepts files without a scan.
typedef struct Decoder {
  stbi__jpeg *stb;
  stbi__context input; // the segment or scan that stb_image reads
  // Zero bytes that it was given after the end of the input.
  size_t beyond;
  bool has_frame, has_scans, has_quants[TABLES], has_codes[2][TABLES]; // DC, AC
  bool has_scan[COMPONENTS];
  int64_t work;                        // block visits of the scans so far
  stbi__uint16 quants[COMPONENTS][64]; // of each component, as they were at its first scan
  uint8_t lacking[COMPONENTS][64];     // progressive: bits that a coefficient still lacks, plus 1; 0: no scan had it
  const uint8_t *bytes;                // the file, for messages
  const RowTarget *to;
  Scratch *scratch;
  ImageFault *fault;
} Decoder;

static int give_zero(void *decoder, char *to, int room) {
  (void)room;
  Decoder *d = decoder;
  d->input.img_buffer_original = d->input.img_buffer; // stb_image uses the distance between the two
  d->beyond++;
  *to = 0;
  return 1;
}
static void skip_nothing(void *decoder, int bytes) {
  (void)decoder;
  (void)bytes;
}
static int never(void *decoder) { return decoder == NULL; }

static void idct(stbi_uc *out, int pitch, short data[64]) { jpeg_idct(out, pitch, data); }
static size_t samples_of(const stbi__jpeg *z, int n) { return (size_t)z->img_comp[n].w2 * (size_t)z->img_comp[n].h2; }

static void feed(Decoder *d, const uint8_t *from, size_t size) {
  d->input.img_buffer = (stbi_uc *)from;
  d->input.img_buffer_end = (stbi_uc *)from + size;
  d->input.read_from_callbacks = 1;
  d->beyond = 0;
}

#define CORRUPT(...) fault_set(d->fault, FAULT_CORRUPT, __VA_ARGS__)

static bool stb_refuses(Decoder *d) { return CORRUPT("%s", stbi_failure_reason()); }

static bool stb_takes(Decoder *d, int marker) { return stbi__process_marker(d->stb, marker) || stb_refuses(d); }

// ---- segments -------------------------------------------------------------------------------------------------------

// stb_image 2.27 writes past its own tables if there are more than 256 symbols, and takes DC symbols, which are
// numbers of bits, that are too large.
static bool take_codes(Decoder *d, const JpegSegment *s) {
  enum { LENGTHS = 16, SYMBOLS = 256, MOST_BITS = 15 };
  for (size_t left = s->size; left > 0;) {
    const uint8_t *table = s->body + s->size - left; // class and number, how many codes of each length, symbols
    size_t symbols = 0;
    if (left < 1 + LENGTHS) return CORRUPT("a Huffman table is cut short");
    for (int i = 1; i <= LENGTHS; i++) symbols += table[i];
    if (symbols > SYMBOLS || 1 + LENGTHS + symbols > left) return CORRUPT("a Huffman table with %zu symbols", symbols);
    if (table[0] >> 4 > 1 || (table[0] & 15) >= TABLES)
      return CORRUPT("a Huffman table has the invalid number %d", table[0]);
    for (size_t i = 0; i < symbols && table[0] >> 4 == 0; i++)
      if (table[1 + LENGTHS + i] > MOST_BITS)
        return CORRUPT("a DC Huffman table has the invalid symbol %d", table[1 + LENGTHS + i]);
    d->has_codes[table[0] >> 4][table[0] & 15] = true;
    left -= 1 + LENGTHS + symbols;
  }
  return true;
}

static bool take_quants(Decoder *d, const JpegSegment *s) {
  for (size_t left = s->size; left > 0;) {
    const uint8_t head = s->body[s->size - left];
    const size_t size = 1 + (head >> 4 ? 128 : 64);
    if (head >> 4 > 1 || (head & 15) >= TABLES) return CORRUPT("a quantization table has the invalid number %d", head);
    if (size > left) return CORRUPT("a quantization table is cut short");
    d->has_quants[head & 15] = true;
    left -= size;
  }
  return true;
}

// Where the coefficients of component n are kept, not zeroed: each block's are when its first scan begins. The image
// itself is written last, so that its memory serves the first component, if it is large enough.
static short *coefficients(const Decoder *d, int n) {
  const stbi__jpeg *z = d->stb;
  const size_t bytes = samples_of(z, n) * sizeof(short), image = 3 * (size_t)z->s->img_y * (size_t)z->s->img_x;
  const size_t odd = (uintptr_t)d->to->memory % sizeof(short);
  void *p = n == 0 && bytes + odd <= image ? d->to->memory + odd : scratch_resize(d->scratch, NULL, 0, bytes);
  return p;
}

static bool take_memory(Decoder *d) {
  stbi__jpeg *z = d->stb;
  for (int n = 0; n < z->s->img_n; n++) {
    if (z->progressive)
      z->img_comp[n].coeff = coefficients(d, n);
    else
      z->img_comp[n].data = scratch_take(d->scratch, samples_of(z, n));
    if (z->progressive ? !z->img_comp[n].coeff : !z->img_comp[n].data)
      return fault_set(d->fault, FAULT_MEMORY, "planes");
  }
  return true;
}

static bool take_frame(Decoder *d, const JpegSegment *s) {
  if (d->has_frame) return CORRUPT("two frame headers");
  d->has_frame = true;
  d->stb->progressive = s->marker == JPEG_SOF2;
  return (stbi__process_frame_header(d->stb, STBI__SCAN_load) || stb_refuses(d)) && take_memory(d);
}

static bool take_segment(Decoder *d, const JpegSegment *s) {
  feed(d, s->body - 2, s->size + 2);
  switch (s->marker) {
  case JPEG_SOF0:
  case JPEG_SOF1:
  case JPEG_SOF2: return take_frame(d, s);
  case JPEG_DHT: return take_codes(d, s) && stb_takes(d, s->marker);
  case JPEG_DQT: return take_quants(d, s) && stb_takes(d, s->marker);
  case JPEG_DNL: return true; // the height, again
  case JPEG_DRI:
  case JPEG_COM: return stb_takes(d, s->marker);
  default:
    if (s->marker >= JPEG_APP0 && s->marker <= JPEG_APP15) return stb_takes(d, s->marker);
    return CORRUPT("an unknown marker at byte %td", s->body - d->bytes - 4);
  }
}

// ---- scans ----------------------------------------------------------------------------------------------------------

static bool is_restart(int marker) { return marker >= JPEG_RST0 && marker <= JPEG_RST7; }

// Finds the end of the entropy-coded data: a marker other than a restart. Counts restarts.
static const uint8_t *scan_end(const uint8_t *p, const uint8_t *end, int *restarts) {
  for (*restarts = 0; (p = memchr(p, 0xff, (size_t)(end - p)));) {
    const uint8_t *fill = p;
    while (p < end && *p == 0xff) p++;
    if (p == end) return fill;
    if (is_restart(*p))
      ++*restarts;
    else if (*p != 0)
      return fill;
  }
  return end;
}

// The first of `due` restart markers that does not follow from the one before: they are numbered 0 … 7 in turn, so that
// a lost interval shows. NULL if there is none.
static const uint8_t *restart_out_of_turn(const uint8_t *p, const uint8_t *end, int due) {
  for (int n = 0; n < due && (p = memchr(p, 0xff, (size_t)(end - p)));) {
    while (p < end && *p == 0xff) p++;
    if (p == end || !is_restart(*p)) continue;
    if (*p != JPEG_RST0 + n++ % 8) return p - 1;
  }
  return NULL;
}

// The number of restarts in the scan: one after each interval of MCUs but the last.
static int restarts_due(const stbi__jpeg *z) {
  if (!z->restart_interval) return 0;
  const int n = z->order[0];
  const bool alone = z->scan_n == 1;
  const int w = alone ? (z->img_comp[n].x + 7) / 8 : z->img_mcu_x,
            h = alone ? (z->img_comp[n].y + 7) / 8 : z->img_mcu_y;
  return (int)(((int64_t)w * h - 1) / z->restart_interval);
}

// Gives stb_image the standard Huffman tables if a baseline file omits them.
static bool need_codes(Decoder *d, bool ac, int number) {
  if (d->has_codes[ac][number]) return true;
  if (d->stb->progressive || number >= STANDARD_TABLES)
    return CORRUPT("a scan uses %s Huffman table %d, which is missing", ac ? "AC" : "DC", number);
  uint8_t segment[2 + JPEG_TABLE_ROOM];
  const size_t size = 2 + jpeg_standard_table(ac, number, segment + 2);
  segment[0] = (uint8_t)(size >> 8);
  segment[1] = (uint8_t)size;
  d->has_codes[ac][number] = true;
  feed(d, segment, size);
  return stb_takes(d, JPEG_DHT);
}

static bool need_tables(Decoder *d, int n) {
  const stbi__jpeg *z = d->stb;
  const int quant = z->img_comp[n].tq;
  if (!d->has_quants[quant]) return CORRUPT("component %d uses quantization table %d, which is missing", n + 1, quant);
  const bool dc = !z->progressive || (z->spec_start == 0 && z->succ_high == 0);
  const bool ac = !z->progressive || z->spec_start > 0;
  return (!dc || need_codes(d, false, z->img_comp[n].hd)) && (!ac || need_codes(d, true, z->img_comp[n].ha));
}

// A coefficient's first scan may leave low bits to later ones, each of which adds the highest missing one (T.81,
// G.1.1.1.2). stb_image takes any order, and so damaged headers.
static bool take_bits(Decoder *d, int n, const JpegSegment *s) {
  const stbi__jpeg *z = d->stb;
  const bool early = z->progressive && z->spec_start > 0 && !d->has_scan[n]; // DC is first (T.81, G.1.1.1.1)
  if (early) return CORRUPT("the progressive scan at byte %td comes before that of its DC", s->body - d->bytes);
  for (int k = z->spec_start; z->progressive && k <= z->spec_end; k++) {
    uint8_t *lacking = &d->lacking[n][k];
    const bool fits = z->succ_high ? *lacking == z->succ_high + 1 && z->succ_low == z->succ_high - 1 : *lacking == 0;
    if (!fits) return CORRUPT("the progressive scan at byte %td contradicts the scans before it", s->body - d->bytes);
    *lacking = (uint8_t)(z->succ_low + 1);
  }
  return true;
}

// stb_image looks components up by id, and accepts a scan that names one twice.
static bool take_scan_header(Decoder *d, const JpegSegment *s) {
  stbi__jpeg *z = d->stb;
  if (!d->has_frame) return CORRUPT("a scan before the frame header");
  feed(d, s->body - 2, s->size + 2);
  stbi__g_failure_reason =
      "a scan refers to a component that the frame does not have"; // for which stb_image gives no reason
  if (!stbi__process_scan_header(z)) return stb_refuses(d);
  stbi__g_failure_reason = unexplained;
  for (int i = 0; i < z->scan_n; i++) {
    const int n = z->order[i];
    for (int k = 0; k < i; k++)
      if (z->order[k] == n) return CORRUPT("a scan names a component twice");
    if (!need_tables(d, n) || !take_bits(d, n, s)) return false;
    if (!z->progressive && d->has_scan[n]) return CORRUPT("component %d has two scans", n + 1);
    if (!d->has_scan[n]) memcpy(d->quants[n], z->dequant[z->img_comp[n].tq], sizeof d->quants[n]);
    d->has_scan[n] = true;
  }
  return true;
}

// Blocks that a scan visits. One that adds a bit to coefficients looks at each of them, eight in the time of a block.
static int64_t visits(const stbi__jpeg *z) {
  int64_t blocks = 0;
  for (int i = 0; i < z->scan_n; i++) {
    const int n = z->order[i];
    blocks += (int64_t)((z->img_comp[n].x + 7) / 8) * ((z->img_comp[n].y + 7) / 8);
  }
  return blocks * (z->progressive && z->succ_high ? 1 + (z->spec_end - z->spec_start) / 8 : 1);
}

// A progressive scan of hardly any bytes may visit every block, and there may be thousands. The usual ones of libjpeg
// visit a block 21 times.
static bool take_work(Decoder *d) {
  enum { MOST = 48, SMALL = 1 << 22 }; // visits of each block; of a whole image, in any case
  const stbi__jpeg *z = d->stb;
  int64_t blocks = 0;
  for (int n = 0; n < d->input.img_n; n++)
    blocks += (int64_t)((z->img_comp[n].x + 7) / 8) * ((z->img_comp[n].y + 7) / 8);
  d->work += visits(z);
  return d->work <= MAX(MOST * blocks, SMALL) || CORRUPT("its scans visit every block more than %d times", MOST);
}

static bool take_scan(Decoder *d, const JpegSegment *s, const uint8_t **at, const uint8_t *end) {
  stbi__jpeg *z = d->stb;
  if (!take_scan_header(d, s) || !take_work(d)) return false;
  d->has_scans = true;
  int restarts, left = 0;
  const int due = restarts_due(z);
  const uint8_t *data = *at;
  *at = scan_end(data, end, &restarts);
  if (*at == end) return fault_set(d->fault, FAULT_CUT, "no end marker");
  const bool surplus = restarts > due && (*at)[-2] == 0xff && is_restart((*at)[-1]); // one behind the last interval
  if (restarts - surplus != due)
    return CORRUPT("%d restart markers instead of %d in the scan at byte %td", restarts, due, data - d->bytes);
  const uint8_t *wrong = restart_out_of_turn(data, *at, due);
  if (wrong) return CORRUPT("the restart marker at byte %td is out of turn", wrong - d->bytes);
  feed(d, data, (size_t)(*at - data));
  if (!stbi__parse_entropy_coded_data(z)) return stb_refuses(d);
  if (d->beyond > (size_t)MAX(z->code_bits, 0) / 8)
    return CORRUPT("the scan at byte %td ends before the last pixel", data - d->bytes);
  if (d->beyond == 0) scan_end(d->input.img_buffer, *at, &left);
  if (restarts - left < due) // stb_image stopped where it expected a restart
    return CORRUPT("misplaced restart markers in the scan at byte %td", data - d->bytes);
  return true;
}

// Whether scans had all bits of all coefficients. T.81 does not ask for that, and libjpeg smooths over what it has not;
// but encoders send all, so that such a file has lost its last scans.
static bool has_all_bits(const Decoder *d, int n) {
  for (int k = 0; k < 64; k++)
    if (d->lacking[n][k] != 1) return false;
  return true;
}

// ---- the file -------------------------------------------------------------------------------------------------------

// The samples of a component of a progressive file replace its coefficients, of which a row of blocks takes twice the
// memory; those of one that are in the image's memory leave it.
static bool write_samples(Decoder *d, int n) {
  stbi__jpeg *z = d->stb;
  const size_t w = (size_t)z->img_comp[n].w2, band = 8 * w;
  const short *block = z->img_comp[n].coeff;
  const bool leaves = n == 0;
  uint8_t *samples = scratch_resize(d->scratch, NULL, 0, leaves ? samples_of(z, n) : band);
  if (!samples) return fault_set(d->fault, FAULT_MEMORY, "planes");
  z->img_comp[n].data = leaves ? samples : (uint8_t *)z->img_comp[n].coeff;
  for (int y = 0; y < (z->img_comp[n].y + 7) / 8; y++) {
    for (size_t x = 0; x < w; x += 8, block += 64) {
      int16_t values[64];
      for (int k = 0; k < 64; k++) values[k] = (int16_t)(block[k] * d->quants[n][k]);
      jpeg_idct(samples + x, (int)w, values);
    }
    if (leaves)
      samples += band;
    else
      memcpy(z->img_comp[n].data + (size_t)y * band, samples, band);
  }
  return true;
}

static bool take_file(Decoder *d, size_t size) {
  const uint8_t *at = d->bytes, *end = at + size;
  JpegSegment s;
  JpegStep step;
  while ((step = jpeg_next(&at, end, &s)) == JPEG_SEGMENT)
    if (!(s.marker == JPEG_SOS ? take_scan(d, &s, &at, end) : take_segment(d, &s))) return false;
  if (step != JPEG_END) return jpeg_step_fault(step, &s, d->bytes, "end marker", d->fault);
  const int components = d->input.img_n;
  int scanned = 0;
  for (int n = 0; n < components; n++) scanned += d->has_scan[n];
  if (!d->has_scans) return CORRUPT("it has no scan, so no pixels");
  if (scanned < components)
    return CORRUPT("%d of its %d components have no scan%s", components - scanned, components,
                   d->stb->progressive ? " of their DC coefficients" : "");
  if (!d->stb->progressive) return true;
  for (int n = 0; n < components; n++) {
    if (!has_all_bits(d, n)) return fault_set(d->fault, FAULT_CUT, "component %d lacks later progressive scans", n + 1);
    if (!write_samples(d, n)) return false;
  }
  return true;
}

// As in libjpeg (jdapimin.c): JFIF means YCbCr; otherwise Adobe's marker decides, then the components' ids.
static JpegColors colors_of(const stbi__jpeg *z) {
  const int components = z->s->img_n, adobe = z->app14_color_transform; // -1: none
  if (components == 1) return JPEG_GRAY;
  if (components == 4) return adobe <= 0 ? JPEG_CMYK : JPEG_YCCK;
  if (z->jfif) return JPEG_YCC;
  return adobe == 0 || (adobe < 0 && z->rgb == 3) ? JPEG_RGB : JPEG_YCC;
}

static bool write_pixels(const stbi__jpeg *z, const RowTarget *to, Scratch *scratch) {
  JpegPlanes p = {.h = (int)z->s->img_y, .w = (int)z->s->img_x, .colors = colors_of(z)};
  for (int n = 0; n < z->s->img_n; n++)
    p.plane[n] = (JpegPlane){.at = z->img_comp[n].data,
                             .h = z->img_comp[n].y,
                             .w = z->img_comp[n].x,
                             .pitch = z->img_comp[n].w2,
                             .down = z->img_v_max / z->img_comp[n].v,
                             .right = z->img_h_max / z->img_comp[n].h};
  return jpeg_planes_to_rgb(&p, to, scratch);
}

bool jpeg_decode(const RowTarget *to, const uint8_t *bytes, size_t size, Scratch *scratch, ImageFault *fault) {
  Decoder d = {.bytes = bytes, .to = to, .scratch = scratch, .fault = fault};
  d.stb = scratch_take(scratch, sizeof *d.stb);
  if (!d.stb) return fault_set(fault, FAULT_MEMORY, "decoder");
  stbi_io_callbacks io = {give_zero, skip_nothing, never};
  d.input.io = io;
  d.input.io_user_data = &d;
  d.input.buflen = sizeof d.input.buffer_start;
  d.stb->s = &d.input;
  d.stb->marker = STBI__MARKER_none;
  d.stb->app14_color_transform = -1;
  d.stb->idct_block_kernel = idct;
  stbi__g_failure_reason = unexplained;
  return take_file(&d, size) && (write_pixels(d.stb, to, scratch) || fault_set(fault, FAULT_MEMORY, "rows"));
}
