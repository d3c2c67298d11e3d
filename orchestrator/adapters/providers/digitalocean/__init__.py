"""The providers `do` and `amd`: DigitalOcean's droplets, and the AMD Developer Cloud's, which is the same API.

provider    what kedge calls; creation makes a droplet (belongings, images, volumes), droplets finds it by its tags in
            both of the API's listings, view says what it looks like
api         the one way to the SDK: nothing is repeated that creates, every failure is one of four kinds
offers      what is for sale (sizes), or the dated snapshot
belongings  what a run has before its first droplet: SSH key, tag, firewall, project
records     what this laptop must know of a machine before the API does
"""
