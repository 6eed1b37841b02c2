// Package upgrade raises one EKS cluster: which minors to go through, which add-ons
// have to be raised around a hop, what the upgrade insights say, and the two steps
// that change something, the control plane's hop and an add-on's update.
//
// Each changing call carries a ClientRequestToken that is in the journal before the
// call is made (semantics 7), so that a run that was killed at any moment finds the
// update it started, or sends the very same request again.
package upgrade
