"""How the IPUs of each V-IPU controller were used."""
