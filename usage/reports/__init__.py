"""Reports of months and ranges: how they are made, stored, corrected and downloaded."""
