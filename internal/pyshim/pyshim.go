package pyshim

import _ "embed"

// Codec is the Python half of the package state's codec: encode and decode.
//
//go:embed codec.py
var Codec string
