#!/bin/sh
# The version before the first save: it is on the disk when the program begins.
{ echo "version 0"; seq 1 1000; echo end; } > config
