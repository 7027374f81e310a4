/* bytes.c: the two ways in which vocabularies write bytes: letters, so that every token can be printed, and names.
 *
 * The alphabet: printable bytes of Latin-1 stand for themselves, the other 68 are the letters from U+0100 on. */
#include "text/tokenizer/tokenizer.h"

static bool is_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

uint32_t mica__byte_letter(unsigned char byte)
{
    if (is_itself(byte))
        return byte;
    if (byte <= 0x20)
        return 0x100u + byte;
    return byte == 0xad ? 0x143 : 0x121u + (byte - 0x7fu); /* 7f .. a0 */
}

int mica__letter_byte(uint32_t letter)
{
    if (letter < 0x100)
        return is_itself(letter) ? (int)letter : -1;
    if (letter <= 0x120)
        return (int)(letter - 0x100);
    if (letter <= 0x142)
        return (int)(letter - 0x121 + 0x7f);
    return letter == 0x143 ? 0xad : -1;
}

static int hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

int mica__byte_of_name(const char *text, size_t length)
{
    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}
