// Package servingcert makes and rotates the certificates of the webhook server in process, so that nothing else needs to be
// installed.
//
// A CA lies in one Secret that all replicas share; whichever comes first creates it. Each replica signs a leaf of its own
// and keeps it in memory. At two thirds of its life the CA is followed by a new one; both stand in the caBundle of the
// webhook configuration until the old one expires, and a replica signs with the new one only once the bundle has held it
// for a while, so no call of the API server meets a certificate that it does not know yet. The leader writes the bundle,
// and repairs it when somebody else does.
//
// cmd/manager runs a Keeper on every replica.
package servingcert
