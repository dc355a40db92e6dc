"""The sub-commands of `oncewire` that run or reach routers."""
