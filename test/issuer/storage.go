package issuer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

type callbackURL func(ctx context.Context, id string) string

// storage keeps what the issuer knows. The embedded interface is nil: a call that no test needs panics.
type storage struct {
	op.Storage

	mu        sync.Mutex
	made      int
	signing   key
	published []key
	users     map[string]map[string]any
	clients   map[string]*client
	logins    map[string]*login
	codes     map[string]string
}

func newStorage() *storage {
	return &storage{
		users: map[string]map[string]any{}, clients: map[string]*client{}, logins: map[string]*login{},
		codes: map[string]string{},
	}
}

func (s *storage) addUser(name string, claims map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[name] = claims
}

func (s *storage) userNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.users))
}

func (s *storage) addClient(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[c.id] = c
}

// login is a login of a person, from the request of a browser until the code is exchanged. It implements
// op.AuthRequest.
type login struct {
	*oidc.AuthRequest
	id, user string
	at       time.Time
}

func (l *login) GetID() string                      { return l.id }
func (l *login) GetACR() string                     { return "" }
func (l *login) GetAMR() []string                   { return []string{"pwd"} }
func (l *login) GetAudience() []string              { return []string{l.ClientID} }
func (l *login) GetAuthTime() time.Time             { return l.at }
func (l *login) GetClientID() string                { return l.ClientID }
func (l *login) GetNonce() string                   { return l.Nonce }
func (l *login) GetRedirectURI() string             { return l.RedirectURI }
func (l *login) GetResponseType() oidc.ResponseType { return l.ResponseType }
func (l *login) GetResponseMode() oidc.ResponseMode { return l.ResponseMode }
func (l *login) GetScopes() []string                { return l.Scopes }
func (l *login) GetState() string                   { return l.State }
func (l *login) GetSubject() string                 { return l.user }
func (l *login) Done() bool                         { return l.user != "" }
func (l *login) GetCodeChallenge() *oidc.CodeChallenge {
	if l.CodeChallenge == "" {
		return nil
	}
	return &oidc.CodeChallenge{Challenge: l.CodeChallenge, Method: l.CodeChallengeMethod}
}

// login says who a person is.
func (s *storage) login(id, user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, known := s.logins[id]
	if _, exists := s.users[user]; !known || !exists {
		return false
	}
	l.user, l.at = user, time.Now()
	return true
}

func (s *storage) CreateAuthRequest(_ context.Context, request *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	l := &login{AuthRequest: request, id: fmt.Sprintf("login-%d", s.made)}
	s.logins[l.id] = l
	return l, nil
}

var errUnknown = errors.New("the issuer of the test does not know this")

func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, known := s.logins[id]; known {
		return l, nil
	}
	return nil, errUnknown
}

func (s *storage) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	s.mu.Lock()
	id := s.codes[code]
	s.mu.Unlock()
	return s.AuthRequestByID(ctx, id)
}

func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[code] = id
	return nil
}

func (s *storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.logins, id)
	maps.DeleteFunc(s.codes, func(_, of string) bool { return of == id })
	return nil
}

func (s *storage) CreateAccessToken(context.Context, op.TokenRequest) (string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	return fmt.Sprintf("token-%d", s.made), time.Now().Add(time.Hour), nil
}

func (s *storage) SigningKey(context.Context) (op.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signing, nil
}

func (s *storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.ES256, jose.RS256}, nil
}

func (s *storage) KeySet(context.Context) (keys []op.Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.published {
		keys = append(keys, publicKey{k})
	}
	return keys, nil
}

func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, known := s.clients[id]; known {
		return c, nil
	}
	return nil, errUnknown
}

func (s *storage) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, known := s.clients[id]; known && c.secret == secret {
		return nil
	}
	return errUnknown
}

// SetUserinfoFromScopes implements op.Storage: every scope gives all claims.
func (s *storage) SetUserinfoFromScopes(
	_ context.Context, info *oidc.UserInfo, user, _ string, _ []string,
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	info.Subject = user
	for name, value := range s.users[user] {
		info.AppendClaims(name, value)
	}
	return nil
}

func (s *storage) GetPrivateClaimsFromScopes(_ context.Context, _, id string, _ []string) (map[string]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.clients[id].claims), nil
}

// ClientCredentials implements op.ClientCredentialsStorage.
func (s *storage) ClientCredentials(ctx context.Context, id, secret string) (op.Client, error) {
	if err := s.AuthorizeClientIDSecret(ctx, id, secret); err != nil {
		return nil, err
	}
	return s.GetClientByClientID(ctx, id)
}

// ClientCredentialsTokenRequest implements op.ClientCredentialsStorage.
func (s *storage) ClientCredentialsTokenRequest(
	_ context.Context, id string, scopes []string,
) (op.TokenRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &machineRequest{id, s.clients[id].audience, scopes}, nil
}

type machineRequest struct {
	id, audience string
	scopes       []string
}

func (r *machineRequest) GetSubject() string    { return r.id }
func (r *machineRequest) GetAudience() []string { return []string{r.audience} }
func (r *machineRequest) GetScopes() []string   { return r.scopes }

// client implements op.Client.
type client struct {
	id, secret, audience string
	redirectURIs         []string
	claims               map[string]any
}

func (c *client) GetID() string                       { return c.id }
func (c *client) RedirectURIs() []string              { return c.redirectURIs }
func (c *client) PostLogoutRedirectURIs() []string    { return nil }
func (c *client) ApplicationType() op.ApplicationType { return op.ApplicationTypeWeb }
func (c *client) AuthMethod() oidc.AuthMethod         { return oidc.AuthMethodBasic }
func (c *client) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}
func (c *client) LoginURL(id string) string            { return loginPath + "?id=" + id }
func (c *client) AccessTokenType() op.AccessTokenType  { return op.AccessTokenTypeJWT }
func (c *client) IDTokenLifetime() time.Duration       { return time.Hour }
func (c *client) DevMode() bool                        { return true } // redirects to http://127.0.0.1
func (c *client) IsScopeAllowed(string) bool           { return true }
func (c *client) IDTokenUserinfoClaimsAssertion() bool { return true }
func (c *client) ClockSkew() time.Duration             { return 0 }

func (c *client) GrantTypes() []oidc.GrantType {
	if c.audience != "" {
		return []oidc.GrantType{oidc.GrantTypeClientCredentials}
	}
	return []oidc.GrantType{oidc.GrantTypeCode}
}

func (c *client) RestrictAdditionalIdTokenScopes() func([]string) []string     { return all }
func (c *client) RestrictAdditionalAccessTokenScopes() func([]string) []string { return all }

func all(scopes []string) []string { return scopes }
