"""The steps that actions of a plan consist of, one module each; `engine.performing` calls them."""
