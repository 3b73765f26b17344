package faults

import (
	"crypto/sha256"
	"fmt"
)

// Content is a message's payload, headers and destination.
type Content struct {
	Exchange, RoutingKey string
	Size                 int
	Digest               [sha256.Size]byte
	// Headers is the digest of the headers, zero where there are none.
	Headers [sha256.Size]byte
}

// NewContent is the content of a message with headers and a body.
func NewContent(exchange, key string, headers map[string]string, body []byte) Content {
	c := Content{Exchange: exchange, RoutingKey: key, Size: len(body), Digest: sha256.Sum256(body)}
	if len(headers) > 0 {
		c.Headers = sha256.Sum256(fmt.Appendf(nil, "%q", headers)) // a map is printed in the order of its keys
	}
	return c
}

// Copy is one delivery to a consumer.
type Copy struct {
	Content
	Attempt     int
	Redelivered bool
}

// flagged says whether the copy announces that another copy may be out.
func (c Copy) flagged() bool { return c.Attempt > 1 || c.Redelivered }
