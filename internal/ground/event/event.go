// Package event reads what a message's body says about its event, for the columns of the SDKs' tables.
package event

import (
	"encoding/json"
	"mime"
	"strings"
)

// Event names an event and the object that it changed.
type Event struct {
	Type          string
	AggregateType string
	AggregateID   string
}

// The content types that Of reads: JSON in the form of package envelope, and CloudEvents in structured mode.
const (
	plain      = "application/json"
	cloudEvent = "application/cloudevents+json"
)

// Of reads the event of a body. The result is empty for a body of another content type, or of another form: a table
// keeps every message, so a body without an event is no error.
func Of(contentType string, body []byte) Event {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch kind {
	case plain:
		var e struct {
			Type          text `json:"eventType"`
			AggregateType text `json:"aggregateType"`
			AggregateID   text `json:"aggregateId"`
		}
		_ = json.Unmarshal(body, &e) // the fields before a mistake count
		return Event{string(e.Type), string(e.AggregateType), string(e.AggregateID)}
	case cloudEvent:
		var e struct {
			Type    text `json:"type"`
			Source  text `json:"source"`
			Subject text `json:"subject"`
		}
		_ = json.Unmarshal(body, &e)
		return Event{string(e.Type), string(e.Source), string(e.Subject)}
	}
	return Event{}
}

// text is a JSON string, or a number in its own spelling: some systems number their aggregates.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	switch {
	case json.Unmarshal(data, &s) == nil:
		*t = text(s)
	case len(data) > 0 && strings.ContainsRune("-0123456789", rune(data[0])):
		*t = text(data)
	}
	return nil
}

// longest is how many bytes a column of a name holds, in every dialect.
const longest = 255

// Column returns the value of a column that holds a name: nil for an empty name, and for a name that some database
// would refuse. A business must not fail because of a column that is there for people.
func Column(name string) any {
	if name == "" || len(name) > longest || strings.ContainsRune(name, 0) || strings.ToValidUTF8(name, "") != name {
		return nil
	}
	return name
}
