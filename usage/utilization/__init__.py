"""What became of the IPUs of each V-IPU controller."""
