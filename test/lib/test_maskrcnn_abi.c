// Catches changes of the library's binary interface: sizes and offsets of structs, values of enumerators, symbols with
// their versions, against the record in abi.txt. What is appended is compatible: change the record in the same commit.
// All else breaks programs and needs another soname.
#include <stddef.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "include/maskrcnn.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

#define SIZE(type) fprintf(f, "struct %s %zu\n", #type, sizeof(type))
#define MEMBER(type, member) fprintf(f, "  %s %zu %zu\n", #member, offsetof(type, member), sizeof((type){0}.member))
#define VALUE(name) fprintf(f, "%s %d\n", #name, name)

static void print_structs(FILE *f) {
  SIZE(maskrcnn_error);
  MEMBER(maskrcnn_error, message);
  SIZE(maskrcnn_device);
  MEMBER(maskrcnn_device, name);
  MEMBER(maskrcnn_device, description);
  MEMBER(maskrcnn_device, total_bytes);
  MEMBER(maskrcnn_device, free_bytes);
  SIZE(maskrcnn_devices);
  MEMBER(maskrcnn_devices, n);
  MEMBER(maskrcnn_devices, devices);
  MEMBER(maskrcnn_devices, why_no_gpu);
  SIZE(maskrcnn_size);
  MEMBER(maskrcnn_size, height);
  MEMBER(maskrcnn_size, width);
  SIZE(maskrcnn_options);
  MEMBER(maskrcnn_options, size);
  MEMBER(maskrcnn_options, weights);
  MEMBER(maskrcnn_options, weights_data);
  MEMBER(maskrcnn_options, weights_bytes);
  MEMBER(maskrcnn_options, device);
  MEMBER(maskrcnn_options, amp);
  MEMBER(maskrcnn_options, tf32);
  MEMBER(maskrcnn_options, conv);
  MEMBER(maskrcnn_options, batch);
  MEMBER(maskrcnn_options, queue);
  MEMBER(maskrcnn_options, threads);
  MEMBER(maskrcnn_options, min_score);
  MEMBER(maskrcnn_options, mask_threshold);
  MEMBER(maskrcnn_options, image_size);
  MEMBER(maskrcnn_options, max_image_size);
  MEMBER(maskrcnn_options, max_pixels);
  MEMBER(maskrcnn_options, canvases);
  MEMBER(maskrcnn_options, num_canvases);
  MEMBER(maskrcnn_options, sync_nodes);
  MEMBER(maskrcnn_options, top);
  MEMBER(maskrcnn_options, detections_per_image);
  MEMBER(maskrcnn_options, proposals_per_image);
  MEMBER(maskrcnn_options, nms);
  MEMBER(maskrcnn_options, set);
  MEMBER(maskrcnn_options, exif);
  MEMBER(maskrcnn_options, max_device_bytes);
  MEMBER(maskrcnn_options, max_host_bytes);
  MEMBER(maskrcnn_options, log);
  MEMBER(maskrcnn_options, log_context);
  SIZE(maskrcnn_memory);
  MEMBER(maskrcnn_memory, size);
  MEMBER(maskrcnn_memory, device_bytes);
  MEMBER(maskrcnn_memory, host_bytes);
  MEMBER(maskrcnn_memory, device_free);
  MEMBER(maskrcnn_memory, host_free);
  SIZE(maskrcnn_description);
  MEMBER(maskrcnn_description, model);
  MEMBER(maskrcnn_description, device);
  MEMBER(maskrcnn_description, why_cpu);
  MEMBER(maskrcnn_description, amp);
  MEMBER(maskrcnn_description, num_kinds);
  MEMBER(maskrcnn_description, kinds);
  MEMBER(maskrcnn_description, num_categories);
  MEMBER(maskrcnn_description, category_ids);
  MEMBER(maskrcnn_description, category_names);
  MEMBER(maskrcnn_description, detections_per_image);
  MEMBER(maskrcnn_description, image_size);
  MEMBER(maskrcnn_description, max_image_size);
  MEMBER(maskrcnn_description, resize_rule);
  MEMBER(maskrcnn_description, num_canvases);
  MEMBER(maskrcnn_description, canvases);
  MEMBER(maskrcnn_description, batch);
  MEMBER(maskrcnn_description, queue);
  MEMBER(maskrcnn_description, threads);
  MEMBER(maskrcnn_description, max_pixels);
  MEMBER(maskrcnn_description, device_bytes);
  MEMBER(maskrcnn_description, host_bytes);
  MEMBER(maskrcnn_description, exif);
  MEMBER(maskrcnn_description, range_low);
  MEMBER(maskrcnn_description, range_high);
  SIZE(maskrcnn_image);
  MEMBER(maskrcnn_image, size);
  MEMBER(maskrcnn_image, data);
  MEMBER(maskrcnn_image, format);
  MEMBER(maskrcnn_image, width);
  MEMBER(maskrcnn_image, height);
  MEMBER(maskrcnn_image, pitch);
  MEMBER(maskrcnn_image, bytes);
  MEMBER(maskrcnn_image, place);
  MEMBER(maskrcnn_image, range_low);
  MEMBER(maskrcnn_image, range_high);
  SIZE(maskrcnn_rle);
  MEMBER(maskrcnn_rle, height);
  MEMBER(maskrcnn_rle, width);
  MEMBER(maskrcnn_rle, num_counts);
  MEMBER(maskrcnn_rle, counts);
  SIZE(maskrcnn_detections);
  MEMBER(maskrcnn_detections, n);
  MEMBER(maskrcnn_detections, boxes);
  MEMBER(maskrcnn_detections, scores);
  MEMBER(maskrcnn_detections, labels);
  MEMBER(maskrcnn_detections, category_ids);
  MEMBER(maskrcnn_detections, names);
  MEMBER(maskrcnn_detections, masks);
  SIZE(maskrcnn_classes);
  MEMBER(maskrcnn_classes, n);
  MEMBER(maskrcnn_classes, scores);
  MEMBER(maskrcnn_classes, labels);
  MEMBER(maskrcnn_classes, category_ids);
  MEMBER(maskrcnn_classes, names);
  SIZE(maskrcnn_result);
  MEMBER(maskrcnn_result, status);
  MEMBER(maskrcnn_result, message);
  MEMBER(maskrcnn_result, kind);
  MEMBER(maskrcnn_result, width);
  MEMBER(maskrcnn_result, height);
  MEMBER(maskrcnn_result, detections);
  MEMBER(maskrcnn_result, classes);
  SIZE(maskrcnn_results);
  MEMBER(maskrcnn_results, tag);
  MEMBER(maskrcnn_results, n);
  MEMBER(maskrcnn_results, images);
  MEMBER(maskrcnn_results, failed);
  SIZE(maskrcnn_picture);
  MEMBER(maskrcnn_picture, width);
  MEMBER(maskrcnn_picture, height);
  MEMBER(maskrcnn_picture, rgb);
}

static void print_values(FILE *f) {
  VALUE(MASKRCNN_OK);
  VALUE(MASKRCNN_FULL);
  VALUE(MASKRCNN_NOT_YET);
  VALUE(MASKRCNN_EMPTY);
  VALUE(MASKRCNN_BAD_ARGUMENT);
  VALUE(MASKRCNN_BAD_WEIGHTS);
  VALUE(MASKRCNN_BAD_DEVICE);
  VALUE(MASKRCNN_NO_MEMORY);
  VALUE(MASKRCNN_BAD_IMAGE);
  VALUE(MASKRCNN_DEAD);
  VALUE(MASKRCNN_CANCELLED);
  VALUE(MASKRCNN_BAD_FILE);
  VALUE(MASKRCNN_LOG_INFO);
  VALUE(MASKRCNN_LOG_WARNING);
  VALUE(MASKRCNN_LOG_ERROR);
  VALUE(MASKRCNN_DETECTIONS);
  VALUE(MASKRCNN_CLASSES);
  VALUE(MASKRCNN_RGB);
  VALUE(MASKRCNN_BGR);
  VALUE(MASKRCNN_RGBA);
  VALUE(MASKRCNN_GREY);
  VALUE(MASKRCNN_GREY16);
  VALUE(MASKRCNN_ENCODED);
  VALUE(MASKRCNN_HOST);
  VALUE(MASKRCNN_GPU);
}

TEST(library_abi_is_as_recorded) {
  const char *said;
  const char *path = in_tmp("abi.txt");
  FILE *f = fopen(path, "w");
  CHECK(f);
  print_structs(f);
  print_values(f);
  fclose(f);
  EXPECT_INT(command(&said,
                     "nm -D --defined-only --with-symbol-versions %s | grep ' T ' | sed 's/.* T //; s/@@/ /' | "
                     "LC_ALL=C sort >>%s && diff test/lib/abi.txt %s",
                     tool("libmaskrcnn.so"), path, path),
             0);
  if (*said) printf("%s", said);
}
