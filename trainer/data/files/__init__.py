"""Files of samples as recipes read them: what decoding one may raise, and arrays that are kept decoded."""
