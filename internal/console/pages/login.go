package pages

import (
	"net/http"

	"github.com/msghandler/msghandler/internal/console/login"
)

// ShowLogin writes the page of the login.
func (p *Pages) ShowLogin(w http.ResponseWriter, r *http.Request, view login.View) {
	p.write(w, r, answer{status: view.Status, page: "login", title: "Log in", data: view})
}
