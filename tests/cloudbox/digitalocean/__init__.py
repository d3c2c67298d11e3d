"""DigitalOcean in a box: its API as far as kedge uses it, in threads of this process, over TLS with a throw-away CA.

    with start_box(folder) as do:               # tests: the fixtures do_api (no machines) and do_box (with machines)
        subprocess.run([...], env={**os.environ, **do.environ})
        do.client().droplets.list(type="gpus")  # a pydo Client without retries
        do.faults.fail_next("POST", "/v2/droplets", after_effect=True)
        do.droplets(), do.calls, do.meter.usd()

`do.environ` is all that kedge needs. What `do.droplets()` shows is the truth, whatever the API says because of faults.
"""
