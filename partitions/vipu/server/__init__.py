"""glue: vipu-server, a V-IPU controller over simulated IPU-Machines."""
