package frame

// The plaintext of a DATA is a copy of its flags byte, then the application's bytes; so a peer in
// the middle cannot end a body early. A DATA of length 0 has no plaintext and is no codec operation.

// AppendData appends the plaintext of a DATA.
func AppendData(dst []byte, f Flags, app []byte) []byte {
	return append(append(dst, byte(f)), app...)
}

// SplitData parts the decoded plaintext of a DATA whose envelope has the flags f. app points into
// plaintext. Errors are BadPayload (there is nothing) and FlagsMismatch.
func SplitData(plaintext []byte, f Flags) (app []byte, err error) {
	if len(plaintext) == 0 {
		return nil, BadPayload
	}
	if Flags(plaintext[0]) != f {
		return nil, FlagsMismatch
	}
	return plaintext[1:], nil
}
