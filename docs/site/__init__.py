"""Builds the site of this folder's pages: `make docs`.

navigation   which pages there are, and in which order
commands     the command reference, from the tasks
job_keys     the job file reference, from its JSON schema
tables       Markdown tables
links        links of the repository's pages, as the site has them
stage        writes all of it into one folder, which Sphinx reads
conf         Sphinx's configuration
__main__     stages, has Sphinx build, and says how long that took
"""
