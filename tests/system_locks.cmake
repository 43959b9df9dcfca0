# SPDX-License-Identifier: Apache-2.0
# What system tests may not share with another test, and which of them mostly wait.
