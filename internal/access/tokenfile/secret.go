package tokenfile

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
)

// A token is mh_ and 48 characters of base64url: 32 random bytes, and the CRC-32 (IEEE, big endian) of these bytes.
// Secret scanners find tokens by the prefix, and the checksum tells a damaged token from a revoked token. 36 bytes fill
// 48 characters exactly, so each token has a single spelling.
const (
	mark         = "mh_"
	randomBytes  = 32
	encodedBytes = randomBytes + crc32.Size
)

// NewSecret makes a token.
func NewSecret() string {
	secret := make([]byte, randomBytes, encodedBytes)
	_, _ = rand.Read(secret) // never fails
	secret = binary.BigEndian.AppendUint32(secret, crc32.ChecksumIEEE(secret))
	return mark + base64.RawURLEncoding.EncodeToString(secret)
}

// form is what a text looks like.
type form int

const (
	otherForm form = iota
	damaged
	whole
)

func formOf(text string) form {
	encoded, marked := strings.CutPrefix(text, mark)
	if !marked {
		return otherForm
	}
	if len(encoded) != base64.RawURLEncoding.EncodedLen(encodedBytes) {
		return damaged
	}
	var secret [encodedBytes]byte
	n, err := base64.RawURLEncoding.Decode(secret[:], []byte(encoded))
	if err != nil || n != encodedBytes ||
		crc32.ChecksumIEEE(secret[:randomBytes]) != binary.BigEndian.Uint32(secret[randomBytes:]) {
		return damaged
	}
	return whole
}
