/* penalize, sample: places in a row of settings (mica_sample_settings). */
#define MK_SETTINGS_SEED 0u
#define MK_SETTINGS_PICK 8u
#define MK_SETTINGS_TEMPERATURE 16u
#define MK_SETTINGS_TOP_K 20u
#define MK_SETTINGS_TOP_P 24u
#define MK_SETTINGS_MIN_P 28u
#define MK_SETTINGS_TYPICAL_P 32u
#define MK_SETTINGS_KEEP 36u
#define MK_SETTINGS_REPEAT 40u
#define MK_SETTINGS_PRESENCE 44u
#define MK_SETTINGS_FREQUENCY 48u
#define MK_SETTINGS_LAST 52u
#define MK_SETTINGS_NEXT 56u
#define MK_SETTINGS_FLAGS 60u
#define MK_HAS_BAN 4u /* flags: a mask of tokens */
#define MK_HAS_BIAS 65536u
#define MK_HAS_HISTORY 131072u
#define MK_HAS_RAW 262144u
#define MK_HAS_CHANCES 524288u
