/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

void rd_text_add(rd_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    size_t fits = (size_t)length < text->left ? (size_t)length : text->left - 1;
    text->at += fits;
    text->left -= fits;
}
