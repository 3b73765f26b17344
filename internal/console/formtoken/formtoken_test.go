package formtoken

import (
	"testing"
	"time"
)

func TestATokenIsValidOnce(t *testing.T) {
	t.Parallel()
	s, now := New(), time.Now()
	until := now.Add(time.Minute)
	token := s.Token("text")
	for _, c := range []struct {
		text, token string
		now         time.Time
		good        bool
	}{
		{"text", token, now, true},
		{"other", token, now, false},
		{"text", token, until.Add(time.Second), false},
		{"text", New().Token("text"), now, false},
		{"text", "", now, false},
	} {
		if err := s.Check(c.text, c.token, until, c.now); (err == nil) != c.good {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if !s.Use(token, until, now) || s.Use(token, until, now) || s.Check("text", token, until, now) == nil {
		t.Error("a token was used twice")
	}
	if s.Use(s.Token("later"), until.Add(time.Hour), until.Add(time.Minute)); len(s.used) != 1 {
		t.Errorf("%d used tokens are remembered", len(s.used))
	}
}
