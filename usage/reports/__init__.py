"""Reports of months and ranges: made, kept, corrected, and handed out as files."""
