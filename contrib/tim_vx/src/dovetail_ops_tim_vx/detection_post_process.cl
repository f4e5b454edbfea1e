// Detections of one image by one work-group: box decoding, greedy non-maximum suppression, and the sorted result.
//
// encodings [BATCH, BOXES, CODE]: y, x, h, w of a box, and what the decoder does not read
// scores    [BATCH, BOXES, COLUMNS]: the class scores begin at column OFFSET
// anchors   [BOXES, 4]: y, x, h, w
// found_boxes [BATCH, SLOTS, 4]: ymin, xmin, ymax, xmax; found_classes, found_scores [BATCH, SLOTS]; count [BATCH]
// boxes [BATCH, BOXES] (decoded), best [BATCH, BOXES], active [BATCH, BOXES] and picked [BATCH, SLOTS] are scratch
//
// Of equal scores the lower index counts. A work item handles every GROUP-th box, so only `boxes` is read by others than its
// writer. Launched with GROUP work items for each image.
#ifndef BOXES
#define BOXES 1
#define CODE 4
#define COLUMNS 1
#define OFFSET 0
#define CLASSES 1
#define MAX_DETECTIONS 1
#define MAX_CLASSES 1
#define PER_CLASS 1
#define REGULAR 0
#define GROUP 64
#endif

#define SLOTS (MAX_DETECTIONS * MAX_CLASSES)
#define CLASSES_EACH (CLASSES < MAX_CLASSES ? CLASSES : MAX_CLASSES)

float intersection_over_union(float4 a, float4 b)
{
    const float ha = a.z - a.x, wa = a.w - a.y, hb = b.z - b.x, wb = b.w - b.y;
    if (!(ha > 0.0f && wa > 0.0f && hb > 0.0f && wb > 0.0f))
        return 0.0f;
    const float h = fmax(fmin(a.z, b.z) - fmax(a.x, b.x), 0.0f);
    const float w = fmax(fmin(a.w, b.w) - fmax(a.y, b.y), 0.0f);
    return h * w / (ha * wa + hb * wb - h * w);
}

// NaN counts as the lowest score.
float score_of(__global const float *scores, int box, int which)
{
    const float score = scores[(size_t)box * COLUMNS + OFFSET + which];
    return isnan(score) ? -INFINITY : score;
}

// The active box with the highest score, or -1; the same for every work item of the group.
int strongest(__global const float *best, __global const uchar *active, __local float *group_scores, __local int *group_boxes)
{
    const int lid = get_local_id(0);
    int winner = -1;
    float highest = -INFINITY;
    for (int box = lid; box < BOXES; box += GROUP)
        if (active[box] && (winner < 0 || best[box] > highest)) {
            winner = box;
            highest = best[box];
        }
    group_scores[lid] = highest;
    group_boxes[lid] = winner;
    barrier(CLK_LOCAL_MEM_FENCE);
    winner = group_boxes[0];
    highest = group_scores[0];
    for (int i = 1; i < GROUP; i++) {
        const int box = group_boxes[i];
        if (box >= 0 && (winner < 0 || group_scores[i] > highest || (group_scores[i] == highest && box < winner))) {
            winner = box;
            highest = group_scores[i];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return winner;
}

void suppress(__global const float4 *boxes, __global uchar *active, int winner, float threshold)
{
    const float4 box = boxes[winner];
    for (int other = get_local_id(0); other < BOXES; other += GROUP)
        if (active[other] && (other == winner || intersection_over_union(box, boxes[other]) > threshold))
            active[other] = 0;
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void detection_post_process_F32(__global const float *encodings, __global const float *scores, __global const float *anchors,
                                __global float *found_boxes, __global float *found_classes, __global float *found_scores,
                                __global float *count,
                                __global float4 *boxes, __global float *best, __global uchar *active, __global int *picked,
                                float score_threshold, float iou_threshold,
                                float y_scale, float x_scale, float h_scale, float w_scale)
{
    __local float group_scores[GROUP];
    __local int group_boxes[GROUP];
    const int lid = get_local_id(0), image = get_group_id(0);
    encodings += (size_t)image * BOXES * CODE;
    scores += (size_t)image * BOXES * COLUMNS;
    found_boxes += (size_t)image * SLOTS * 4;
    found_classes += (size_t)image * SLOTS;
    found_scores += (size_t)image * SLOTS;
    boxes += (size_t)image * BOXES;
    best += (size_t)image * BOXES;
    active += (size_t)image * BOXES;
    picked += (size_t)image * SLOTS;

    for (int box = lid; box < BOXES; box += GROUP) {
        const float4 code = vload4(0, encodings + (size_t)box * CODE), anchor = vload4(box, anchors);
        const float y = code.x / y_scale * anchor.z + anchor.x, x = code.y / x_scale * anchor.w + anchor.y;
        const float h = 0.5f * exp(code.z / h_scale) * anchor.z, w = 0.5f * exp(code.w / w_scale) * anchor.w;
        boxes[box] = (float4)(y - h, x - w, y + h, x + w);
    }
    for (int slot = lid; slot < SLOTS; slot += GROUP) {
        picked[slot] = -1;
        found_classes[slot] = 0.0f;
        found_scores[slot] = 0.0f;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);

    int found = 0;
#if REGULAR
    // Every class by itself; work item 0 keeps the MAX_DETECTIONS best of all classes, sorted.
    for (int which = 0; which < CLASSES; which++) {
        for (int box = lid; box < BOXES; box += GROUP) {
            best[box] = score_of(scores, box, which);
            active[box] = best[box] >= score_threshold;
        }
        for (int round = 0; round < PER_CLASS; round++) {
            const int winner = strongest(best, active, group_scores, group_boxes);
            if (winner < 0)
                break;
            if (lid == 0) {
                const float score = score_of(scores, winner, which);
                int slot = found;
                while (slot > 0 && found_scores[slot - 1] < score)
                    slot--;
                for (int i = min(found, MAX_DETECTIONS - 1); i > slot; i--) {
                    picked[i] = picked[i - 1];
                    found_classes[i] = found_classes[i - 1];
                    found_scores[i] = found_scores[i - 1];
                }
                if (slot < MAX_DETECTIONS) {
                    picked[slot] = winner;
                    found_classes[slot] = which;
                    found_scores[slot] = score;
                    found = min(found + 1, MAX_DETECTIONS);
                }
            }
            suppress(boxes, active, winner, iou_threshold);
        }
    }
#else
    // All classes at once by the best score of each box, which is then given once for each of its best classes.
    for (int box = lid; box < BOXES; box += GROUP) {
        float highest = -INFINITY;
        for (int which = 0; which < CLASSES; which++)
            highest = fmax(highest, score_of(scores, box, which));
        best[box] = highest;
        active[box] = highest >= score_threshold;
    }
    for (int round = 0; round < MAX_DETECTIONS; round++) {
        const int winner = strongest(best, active, group_scores, group_boxes);
        if (winner < 0)
            break;
        if (lid == 0) {
            float last_score = INFINITY;
            int last_class = -1;
            for (int each = 0; each < CLASSES_EACH; each++) {
                int next = -1;
                float highest = -INFINITY;
                for (int which = 0; which < CLASSES; which++) {
                    const float score = score_of(scores, winner, which);
                    const bool later = score < last_score || (score == last_score && which > last_class);
                    if (later && (next < 0 || score > highest)) {
                        next = which;
                        highest = score;
                    }
                }
                const int slot = round * MAX_CLASSES + each;
                picked[slot] = winner;
                found_classes[slot] = next;
                found_scores[slot] = last_score = highest;
                last_class = next;
            }
            found++;
        }
        suppress(boxes, active, winner, iou_threshold);
    }
#endif
    if (lid == 0)
        count[image] = found;
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (int slot = lid; slot < SLOTS; slot += GROUP)
        vstore4(picked[slot] < 0 ? (float4)(0.0f) : boxes[picked[slot]], slot, found_boxes);
}
