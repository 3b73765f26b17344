package login

import (
	"crypto/sha256"
	"net/http"
	"time"
)

// BeginAt gives a browser the session of a token that another clock has begun.
func (g *Gate) BeginAt(w http.ResponseWriter, r *http.Request, token string, began time.Time) error {
	sum := sha256.Sum256([]byte(token))
	until := time.Now().Add(g.config.Age)
	return g.setCookie(w, r, sessionCookie, proof{Sum: sum[:], Began: began, Until: until}, g.config.Age)
}
